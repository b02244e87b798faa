"""How code looks in some languages: templates of functions and statements, filled in by `bench.source_text`.

`$v $w $x` are names, `$f $g` names of functions, `$T` of a class, `$n $m` numbers, `$s` words for people, `$args` the
arguments. Two spaces are one step of indentation; a line that ends with `$body` holds further statements.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language. `depth` is how deep the statements of a function stand; `close` ends a file."""

    suffix: str
    indent: str
    comment: str
    is_camel_case: bool = True
    depth: int = 1
    open: str
    close: str = ""
    arguments: tuple[str, ...]
    functions: tuple[str, ...]
    end: str = ""
    statements: tuple[str, ...]
    returns: tuple[str, ...]


PYTHON = Language(
    suffix="py",
    indent="    ",
    comment="#",
    is_camel_case=False,
    open="from __future__ import annotations\n\nimport logging\nfrom decimal import Decimal\n\nlog = logging.root",
    arguments=("{}: str", "{}: int", "{}: Decimal", "{}: Sequence[str]", "{}: datetime | None = None"),
    functions=(
        'def $f($args) -> $T:\n  """$s."""',
        "async def $f($args) -> None:",
        "def _$f($args) -> dict[str, int]:",
        'def $f(*, $args) -> bool:\n  """$s, and nothing else."""',
    ),
    statements=(
        "$v = $f($w, $x)",
        "$v = await self.$f($w, limit=$n)",
        "$v[$w.$x] = $v.get($w.$x, $n) + $m",
        'log.info("$s: %s", $v)',
        "$v = [$w for $w in $x if $w.$v >= $n]",
        "$v = sorted($w, key=lambda one: (one.$x, one.$v))",
        "self._$v.append($f($w) or $T($x, $n))",
        'if not $v:\n  raise $T(f"$s: {$w!r}")',
        "if $v.$w > $n and $x is not None:$body",
        "for $v in self.$w.$f($x):$body",
        "try:\n  $v = $f($w)\nexcept $T as error:\n  log.warning('$s: %s', error)\n  return $x",
        'with self.$v.$f() as $w:\n  $w.execute("SELECT $v, $w FROM $x WHERE $w > ?", ($n,))',
        "while $v < len($w):$body",
    ),
    returns=("return $v", "return {one.$v: one.$w for one in $x}", "return $f($v)[:$n]", "return $v > $n"),
)

TYPESCRIPT = Language(
    suffix="ts",
    indent="  ",
    comment="//",
    open='import { Logger } from "./logger";\nimport type { Store } from "./ports";\n\nconst log = new Logger();',
    arguments=("{}: string", "{}: number", "{}: Date", "{}: readonly string[]", "{}?: boolean"),
    functions=(
        "export async function $f($args): Promise<$T> {",
        "function $f($args): number {",
        "/** $s. */\nexport const $f = ($args): $T[] => {",
    ),
    end="}",
    statements=(
        "const $v = await $f($w, { $x: $n });",
        "$v.push(...$w.map((one) => one.$x ?? $n));",
        "log.debug(`$s`, { $v, $w });",
        "const $v = new Map($w.entries());",
        "$v = $w.filter((one) => one.$x !== undefined && one.$v > $n);",
        'if ($v === null) {\n  throw new $T("$s", { cause: $w });\n}',
        "if ($v.length > $n || !$w) {$body\n}",
        "for (const $v of $w.$f($x)) {$body\n}",
        "try {\n  await this.$v.$f($w);\n} catch (error) {\n  log.warn('$s', error);\n  return $x;\n}",
        "switch ($v.kind) {\n  case '$w':\n    $x += $n;\n    break;\n  default:\n    $f($v);\n}",
        "const { $v, $w = $n } = $x;",
        "setTimeout(() => $f($v), $n * $m);",
    ),
    returns=("return $v;", "return $f($v).slice(0, $n);", "return { ...$v, $w };", "return $v.$w - $x;"),
)

GO = Language(
    suffix="go",
    indent="\t",
    comment="//",
    open='package service\n\nimport (\n\t"context"\n\t"errors"\n\t"fmt"\n\t"time"\n)',
    arguments=("{} string", "{} int", "{} time.Duration", "{} []string", "{} map[string]int64"),
    functions=(
        "// $s.\nfunc (s *$T) $f(ctx context.Context, $args) error {",
        "func $f($args) (int, error) {",
        "func (s *$T) $f($args) []string {",
    ),
    end="}",
    statements=(
        '$v, err := s.$f(ctx, $w)\nif err != nil {\n  return fmt.Errorf("$s: %w", err)\n}',
        "$v := make([]string, 0, len($w))",
        "$v[$w] += int64($x) * $n",
        "$v = append($v, $w[$n:]...)",
        "defer s.$v.$f($w)",
        's.log.Info("$s", "$v", $w, "$x", $n)',
        "if $v == nil || $w > $n {$body\n}",
        "for _, $v := range $w {$body\n}",
        'select {\ncase $v := <-s.$w:\n  s.$f($v)\ncase <-time.After($n * time.Second):\n  return errors.New("$s")\n}',
        "s.mu.Lock()\ns.$v[$w] = $x\ns.mu.Unlock()",
        "switch {\ncase $v < $n:\n  $w = $f($x)\ndefault:\n  $w++\n}",
    ),
    returns=("return nil", "return $v, nil", "return s.$f($v, $n)", "return $v[:$n]"),
)

JAVA = Language(
    suffix="java",
    indent="  ",
    comment="//",
    depth=2,
    open="package com.example.service;\n\nimport java.math.BigDecimal;\nimport java.util.*;\n\nfinal class Part {",
    close="}",
    arguments=("String {}", "int {}", "BigDecimal {}", "List<String> {}", "Instant {}"),
    functions=(
        "  public $T $f($args) {",
        "  private static int $f($args) throws $T {",
        "  /** $s. */\n  @Override\n  public List<$T> $f($args) {",
    ),
    end="  }",
    statements=(
        "var $v = repository.$f($w, $n);",
        "$v.merge($w, $x.getQuantity(), Integer::sum);",
        'logger.info("$s: {}", $v);',
        "final List<$T> $v = new ArrayList<>($w.size() + $n);",
        "$v = $w.stream().filter(one -> one.$f() > $n).toList();",
        'if ($v == null) {\n  throw new $T("$s: " + $w);\n}',
        "if ($v.isEmpty() && $w < $n) {$body\n}",
        "for ($T $v : $w) {$body\n}",
        'try ($T $v = $f($w)) {\n  $v.$g($x);\n} catch (IOException error) {\n  logger.warn("$s", error);\n}',
        "this.$v = Objects.requireNonNull($w);",
        "synchronized ($v) {\n  $w.put($x, $n);\n}",
    ),
    returns=("return $v;", "return $f($v, $n);", "return $v.subList(0, $n);", "return $v + $w;"),
)

RUST = Language(
    suffix="rs",
    indent="    ",
    comment="//",
    is_camel_case=False,
    open="use std::collections::HashMap;\nuse std::time::Duration;\n\nuse crate::store::{Error, Store};",
    arguments=("{}: &str", "{}: u64", "{}: Duration", "{}: &[String]", "{}: Option<i64>"),
    functions=(
        "/// $s.\npub fn $f($args) -> Result<$T, Error> {",
        "async fn $f(store: &Store, $args) -> Option<u64> {",
        "pub(crate) fn $f($args) -> HashMap<String, i64> {",
    ),
    end="}",
    statements=(
        "let $v = $f($w, $n)?;",
        "let mut $v = Vec::with_capacity($w.len());",
        "*$v.entry($w.clone()).or_insert($n) += $x;",
        'tracing::debug!($v, "$s");',
        "let $v: Vec<_> = $w.iter().filter(|one| one.$x > $n).collect();",
        'if $v.is_empty() {\n  return Err(Error::$T("$s".into()));\n}',
        "for $v in &$w {$body\n}",
        "match $v {\n  Some($w) if $w > $n => $x.push($w),\n  Some(_) => $f($x),\n  None => {}\n}",
        "while let Some($v) = $w.next().await {$body\n}",
        "let $v = unsafe { $w.get_unchecked($n) };",
    ),
    returns=("Ok($v)", "$v.get($w).copied()", "$f($v, $n)", "Some($v as u64 + $n)"),
)

YAML = Language(
    suffix="yaml",
    indent="  ",
    comment="#",
    is_camel_case=False,
    open="version: 2",
    arguments=("{}",),
    functions=("$f:", "# $s\n$f:"),
    statements=("$v: $n", '$v: "$s"', "$v:\n  $w: $n\n  $x: true", "$v:\n  - $f\n  - $g", "$v: {$w: $n, $x: $m}"),
    returns=("$v: ${$w}", "$v: [$n, $m]"),
)

MARKDOWN = Language(
    suffix="md",
    indent="",
    comment="Note:",
    is_camel_case=False,
    open="# Handbook",
    arguments=("{}",),
    functions=("## How to $s\n", "### `$f`\n"),
    statements=(
        "Use `$f` to $s. It takes `$v` and gives back `$w`.\n",
        "- `$v`: $s\n- `$w` ($n by default): see `$x`",
        "| `$v` | $n | $s |",
    ),
    returns=("Then $s.", "See [$f]($v/$w.md)."),
)

LANGUAGES = (PYTHON, TYPESCRIPT, GO, JAVA, RUST)
TEXTS = (YAML, MARKDOWN)
