"""The forms of tokens by which a vendor's secret is known wherever it stands: one table for masking and for finding.

A form is known by its sign, a short text that each such token begins with, or holds where `inside` says so. A token is
tried only at a sign, so a search takes time linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from codeloupe.model.finding import Severity

_WORD = "A-Za-z0-9_-"
_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"


class Form(NamedTuple):
    """One form. `pattern` is what the whole token looks like; with `word` it counts only at the start of a word."""

    name: str
    signs: tuple[str, ...]
    pattern: str
    severity: Severity = Severity.HIGH
    word: bool = True
    inside: bool = False

    @property
    def compiled(self) -> re.Pattern[str]:
        """The pattern, made when it is first needed."""
        return _compiled(self.pattern)


_CRITICAL = Severity.CRITICAL

FORMS = (
    # Clouds and what runs in them.
    Form("AWS Access Key", ("AKIA", "ASIA", "ABIA", "ACCA"), "A[KSBC][IC]A[A-Z0-9]{16}(?![A-Za-z0-9])", _CRITICAL),
    Form("AWS Bedrock Key", ("ABSK",), "ABSK[A-Za-z0-9+/]{100,400}={0,2}", _CRITICAL),
    Form("AWS MWS Key", ("amzn.mws.",), rf"amzn\.mws\.{_UUID}"),
    Form("Alibaba Cloud Key", ("LTAI",), "LTAI[A-Za-z0-9]{12,20}(?![A-Za-z0-9])", _CRITICAL),
    Form("Tencent Cloud Key", ("AKID",), "AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])", _CRITICAL),
    Form("Yandex Cloud Key", ("AQVN",), f"AQVN[{_WORD}]{{35,38}}", _CRITICAL),
    Form("Scaleway Key", ("SCW",), "SCW[A-Z0-9]{17}(?![A-Za-z0-9])", _CRITICAL),
    Form(
        "Azure Client Secret",
        ("8Q~", "7Q~", *(f"{number}Q~" for number in (0, 1, 2, 3, 4, 5, 6, 9))),
        r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])",
        _CRITICAL,
        inside=True,
    ),
    Form("Azure DevOps Token", ("AZDO",), "[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])", inside=True),
    Form(
        "Azure Storage Account access key",
        ("AccountKey=",),
        "AccountKey=[A-Za-z0-9+/]{40,}={0,2}",
        _CRITICAL,
        word=False,
    ),
    Form("Google API Key", ("AIza",), f"AIza[{_WORD}]{{30,}}", word=False),
    Form("Google Access Token", ("ya29.",), rf"ya29\.[{_WORD}]{{20,}}"),
    Form("Google OAuth Secret", ("GOCSPX-",), f"GOCSPX-[{_WORD}]{{28}}"),
    Form("Firebase Server Key", (":APA91b", "AAAA"), f"AAAA[{_WORD}]{{7}}:[{_WORD}]{{140,162}}"),
    Form("DigitalOcean Token", ("dop_v1_", "doo_v1_", "dor_v1_"), "do[opr]_v1_[a-f0-9]{64}", _CRITICAL),
    Form("Databricks Token", ("dapi",), "dapi[a-f0-9]{32}(?:-[0-9])?(?![A-Za-z0-9])"),
    Form("Heroku Token", ("HRKU-",), f"HRKU-[{_WORD}]{{36,80}}"),
    Form(
        "Fly.io Token",
        ("fo1_", "fm1a_", "fm1r_", "fm2_"),
        f"(?:fo1_[{_WORD}]{{43}}|fm(?:1[ar]|2)_[A-Za-z0-9+/]{{80,2000}}={{0,3}})",
    ),
    Form("Netlify Token", ("nfp_", "nfc_", "nfo_", "nfu_"), "nf[pcou]_[A-Za-z0-9]{36,60}"),
    Form("Vercel Token", ("vcp_", "vci_", "vca_", "vcr_", "vck_"), "vc[piark]_[A-Za-z0-9]{24,60}"),
    Form("Render Token", ("rnd_",), "rnd_[A-Za-z0-9]{28,40}(?![A-Za-z0-9])"),
    Form(
        "Cloudflare Key",
        ("v1.0-", "cfut_", "cfat_", "cfk_"),
        r"(?:v1\.0-[a-f0-9]{24}-[a-f0-9]{146}|cf(?:ut|at|k)_[A-Za-z0-9]{40,60})",
    ),
    Form("PlanetScale Secret", ("pscale_",), r"pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_.=-]{32,64}"),
    Form("Neon Key", ("napi_",), "napi_[a-z0-9]{60,70}"),
    Form("Aiven Secret", ("AVNS_",), f"AVNS_[{_WORD}]{{19,40}}"),
    Form("Supabase Key", ("sbp_", "sb_secret_"), f"(?:sbp_(?:v0_)?[a-f0-9]{{40}}|sb_secret_[{_WORD}]{{31,44}})"),
    Form("Tailscale Key", ("tskey-",), r"tskey-[a-z]+-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20,40}"),
    Form("HashiCorp Vault Token", ("hvs.", "hvb.", "hvr."), rf"hv[sbr]\.[{_WORD}]{{24,300}}", _CRITICAL),
    Form(
        "HashiCorp Terraform Token",
        (".atlasv1.",),
        r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}",
        _CRITICAL,
        inside=True,
    ),
    Form(
        "Doppler Token",
        ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."),
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{40,60}",
    ),
    Form("Pulumi Token", ("pul-",), "pul-[a-f0-9]{40}"),
    Form("OpenShift Token", ("sha256~",), f"sha256~[{_WORD}]{{43}}(?![{_WORD}])"),
    Form("Octopus Deploy Key", ("API-",), "API-[A-Z0-9]{26,32}(?![A-Za-z0-9])"),
    # Code, packages and builds.
    Form(
        "GitHub Token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        "(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
        word=False,
    ),
    Form(
        "GitLab Token",
        (
            "glpat-",
            "gldt-",
            "glrt-",
            "glptt-",
            "glft-",
            "glsoat-",
            "glcbt-",
            "glimt-",
            "glagent-",
            "gloas-",
            "glffct-",
            "GR1348941",
        ),
        f"(?:gl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent|oas|ffct)-[.{_WORD}]{{16,}}|GR1348941[{_WORD}]{{20}})",
        word=False,
    ),
    Form("Bitbucket Password", ("ATBB",), "ATBB[A-Za-z0-9]{28,40}(?![A-Za-z0-9])"),
    Form("Atlassian Token", ("ATATT3", "ATCTT3", "ATSTT3", "ATOTT3"), "AT[ACSO]TT3[A-Za-z0-9_=-]{60,250}"),
    Form("Trello Token", ("ATTA",), "ATTA[a-f0-9]{64,72}"),
    Form("NPM tokens", ("npm_",), "npm_[A-Za-z0-9]{30,}", word=False),
    Form("PyPI Token", ("pypi-",), f"pypi-(?=[a-z0-9_-]{{0,60}}[A-Z])[{_WORD}]{{30,}}", word=False),
    Form("RubyGems Key", ("rubygems_",), "rubygems_[a-f0-9]{48}"),
    Form("Cargo Token", ("cio",), "cio[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    Form("NuGet Key", ("oy2",), "oy2[a-z0-9]{43}(?![A-Za-z0-9])"),
    Form("Clojars Token", ("CLOJARS_",), "CLOJARS_[a-z0-9]{60}"),
    Form("Docker Hub Token", ("dckr_pat_", "dckr_oat_"), f"dckr_[po]at_[{_WORD}]{{27,36}}"),
    Form("Artifactory Credentials", ("AKCp", "cmVmdGtu"), "(?:AKCp[A-Za-z0-9]{65,75}|cmVmdGtu[A-Za-z0-9]{50,60})"),
    Form("Buildkite Token", ("bkua_", "bkaj_", "bkpa_"), "bk(?:ua|aj|pa)_[A-Za-z0-9]{40}"),
    Form("CircleCI Token", ("CCIPAT_", "CCIPRJ_"), "CCIP(?:AT|RJ)_[A-Za-z0-9]{20,24}_[a-f0-9]{40}"),
    Form("SonarQube Token", ("squ_", "sqp_", "sqa_"), "sq[upa]_[a-f0-9]{40}"),
    Form("Snyk Token", ("snyk_uat.", "snyk_sat."), r"snyk_[us]at\.[a-z0-9]{8}\.[A-Za-z0-9._-]{40,300}"),
    Form("Sourcegraph Token", ("sgp_",), "sgp_(?:[a-fA-F0-9]{16}_|local_)?[A-Za-z0-9]{40,64}"),
    Form("Postman Key", ("PMAK-",), "PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    Form("Prefect Key", ("pnu_", "pnb_"), "pn[ub]_[A-Za-z0-9]{36}"),
    Form("ReadMe Key", ("rdme_",), "rdme_[a-z0-9]{70}"),
    Form("Infracost Key", ("ico-",), "ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    Form("WakaTime Key", ("waka_",), f"waka_{_UUID}"),
    # Models.
    Form("Anthropic API Key", ("sk-ant-",), f"sk-ant-[{_WORD}]{{16,}}"),
    Form("OpenAI Token", ("sk-",), f"sk-(?!ecdsa-|ssh-)[{_WORD}]{{16,}}"),
    Form("Hugging Face Token", ("hf_", "api_org_"), "(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    Form("Groq Key", ("gsk_",), "gsk_[A-Za-z0-9]{40,60}"),
    Form("xAI Key", ("xai-",), "xai-[A-Za-z0-9]{60,100}"),
    Form("Perplexity Key", ("pplx-",), "pplx-[A-Za-z0-9]{40,60}"),
    Form("Replicate Token", ("r8_",), "r8_[A-Za-z0-9]{37,40}"),
    Form("Cerebras Key", ("csk-",), "csk-[a-z0-9]{40,60}"),
    Form("Fireworks Key", ("fw_",), "fw_[A-Za-z0-9]{22,30}(?![A-Za-z0-9_])"),
    Form("NVIDIA Key", ("nvapi-",), f"nvapi-[{_WORD}]{{60,80}}"),
    Form("Pinecone Key", ("pcsk_",), "pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,70}"),
    Form("LangSmith Key", ("lsv2_", "ls__"), "(?:lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}|ls__[a-f0-9]{32})"),
    Form("Tavily Key", ("tvly-",), "tvly-(?:dev-|prod-)?[A-Za-z0-9]{28,40}"),
    Form("Firecrawl Key", ("fc-",), "fc-[a-f0-9]{32}(?![A-Za-z0-9])"),
    Form("ElevenLabs Key", ("sk_",), "sk_[a-f0-9]{48}(?![A-Za-z0-9])"),
    Form("Weights & Biases Key", ("wandb_v1_",), f"wandb_v1_[{_WORD}]{{40,120}}"),
    # Money and shops.
    Form("Stripe Access Key", ("k_live_", "k_test_"), "[rs]k_(?:live|test)_[A-Za-z0-9]{16,}", word=False, inside=True),
    Form("Stripe Webhook Secret", ("whsec_",), "whsec_[A-Za-z0-9+/=]{16,}", word=False),
    Form("Square OAuth Secret", ("sq0atp-", "sq0csp-", "sq0idp-"), f"sq0(?:atp|csp|idp)-[{_WORD}]{{22,43}}"),
    Form("Square Token", ("EAAA",), f"EAAA[{_WORD}]{{60}}(?![{_WORD}])"),
    Form(
        "Shopify Token", ("shpat_", "shpca_", "shppa_", "shpss_", "shptka_"), "shp(?:at|ca|pa|ss|tka)_[a-fA-F0-9]{32}"
    ),
    Form("Razorpay Key", ("rzp_live_", "rzp_test_"), "rzp_(?:live|test)_[A-Za-z0-9]{14}"),
    Form(
        "Plaid Token",
        ("access-sandbox-", "access-production-", "access-development-"),
        f"access-(?:sandbox|production|development)-{_UUID}",
    ),
    Form("Braintree Token", ("access_token$",), r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}"),
    Form("Flutterwave Key", ("FLWSECK",), "FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,40}-?X?"),
    Form("Mollie Key", ("live_",), "live_[A-Za-z0-9]{30,40}(?![A-Za-z0-9_-])"),
    Form("EasyPost Key", ("EZAK", "EZTK"), "EZ[AT]K[A-Za-z0-9]{54}"),
    Form("Shippo Token", ("shippo_",), "shippo_(?:live|test)_[a-fA-F0-9]{40}"),
    Form("Duffel Token", ("duffel_",), "duffel_(?:live|test)_[A-Za-z0-9_=-]{43}"),
    # Mail, talk and work.
    Form("SendGrid API Key", ("SG.",), rf"SG\.[{_WORD}]{{16,64}}\.[{_WORD}]{{16,64}}"),
    Form("Brevo Key", ("xkeysib-", "xsmtpsib-"), "x(?:key|smtp)sib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    Form("Mailgun Key", ("key-",), "key-[a-f0-9]{32}(?![A-Za-z0-9])"),
    Form("Mailchimp Access Key", ("-us",), r"[a-f0-9]{32}-us[0-9]{1,2}(?![A-Za-z0-9])", inside=True),
    Form("Resend Key", ("re_",), "re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,30}"),
    Form("Twilio API Key", ("SK",), "SK[a-f0-9]{32}(?![A-Za-z0-9])"),
    Form(
        "Slack Token",
        ("xox", "xapp-", "xwfp-"),
        r"(?:xox[abeposrcd](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|xwfp-[A-Za-z0-9-]{10,})",
        word=False,
    ),
    Form(
        "Slack Webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/+]{20,}",
        word=False,
    ),
    Form(
        "Discord Bot Token",
        ("M", "N", "O"),
        rf"(?=[A-Za-z_.-]{{1,60}}[0-9])[MNO][A-Za-z0-9_-]{{23,27}}\.[{_WORD}]{{6}}\.[{_WORD}]{{27,38}}(?![{_WORD}])",
    ),
    Form("Discord Webhook", ("/api/webhooks/",), rf"/api/webhooks/[0-9]{{17,20}}/[{_WORD}]{{60,70}}", word=False),
    Form(
        "Teams Webhook",
        (".webhook.office.com/",),
        r"\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{80,200}",
        word=False,
    ),
    Form("Telegram Bot Token", (":AA",), rf"[0-9]{{8,10}}:AA[{_WORD}]{{32,33}}(?![{_WORD}])", inside=True),
    Form("Facebook Token", ("EAA",), "EAA[A-Za-z0-9]{90,400}"),
    Form("Twitter Bearer Token", ("AAAAAAAAAAAAAAAAAAAA",), "A{20}[A-Za-z0-9%]{60,150}"),
    Form("Notion Token", ("secret_", "ntn_"), "(?:secret_[A-Za-z0-9]{43}|ntn_[A-Za-z0-9]{40,50})(?![A-Za-z0-9])"),
    Form("Linear Key", ("lin_api_", "lin_oauth_", "lin_wh_"), "lin_(?:api|oauth|wh)_[A-Za-z0-9]{32,64}"),
    Form("Asana Token", ("/",), r"[0-2]/[0-9]{15,17}(?:/[0-9]{15,17})?:[a-f0-9]{32}(?![A-Za-z0-9])", inside=True),
    Form("Airtable Token", ("pat",), r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    Form("HubSpot Token", ("pat-na", "pat-eu", "pat-ap"), f"pat-(?:na|eu|ap)[0-9]-{_UUID}"),
    Form("Figma Token", ("figd_", "figo_", "figu_", "figor_", "figuh_"), f"fig(?:d|o|u|or|uh)r?_[{_WORD}]{{36,64}}"),
    Form("Contentful Token", ("CFPAT-",), f"CFPAT-[{_WORD}]{{43}}"),
    Form("Typeform Token", ("tfp_",), "tfp_[A-Za-z0-9_.=-]{40,64}"),
    Form("Intercom Token", ("dG9rO",), "dG9rO[A-Za-z0-9+/]{40,120}={0,2}"),
    Form("Frame.io Token", ("fio-u-",), "fio-u-[A-Za-z0-9_=-]{64}"),
    Form("Dropbox Token", ("sl.",), rf"sl\.(?:u\.)?[{_WORD}]{{120,1500}}"),
    Form("Mapbox Token", ("sk.eyJ", "tk.eyJ"), rf"[st]k\.eyJ[{_WORD}]{{20,400}}\.[{_WORD}]{{15,60}}"),
    Form("Adobe Secret", ("p8e-", "p8-"), "p8e?-[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    Form(
        "1Password Token",
        ("ops_eyJ", "A3-"),
        "(?:ops_eyJ[A-Za-z0-9+/]{200,2000}={0,3}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5})",
    ),
    # Watching.
    Form(
        "Grafana Token",
        ("glsa_", "glc_", "eyJrIjoi"),
        "(?:glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|glc_[A-Za-z0-9+/]{32,400}={0,3}|eyJrIjoi[A-Za-z0-9+/]{50,400}={0,3})",
    ),
    Form("Sentry Token", ("sntrys_", "sntryu_"), "(?:sntrys_eyJ[A-Za-z0-9+/=_]{60,400}|sntryu_[a-f0-9]{64})"),
    Form(
        "New Relic Key",
        ("NRAK-", "NRII-", "NRIQ-", "NRRA-", "NRAA-", "NRJS-"),
        f"NR(?:AK|II|IQ|RA|AA|JS)-[{_WORD}]{{19,44}}",
    ),
    Form("Datadog Key", ("ddapp_", "ddpat_"), "dd(?:app|pat)_[A-Za-z0-9]{30,60}"),
    Form("Dynatrace Token", ("dt0",), r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    Form("LaunchDarkly Key", ("sdk-", "api-", "mob-"), f"(?:sdk|api|mob)-{_UUID}"),
    Form("PostHog Key", ("phx_", "phs_"), "ph[xs]_[A-Za-z0-9]{40,60}"),
    Form("Elastic Key", ("essu_",), "essu_[A-Za-z0-9+/=]{60,200}"),
    # Keys of no vendor.
    Form("Age Secret Key", ("AGE-SECRET-KEY-1",), "AGE-SECRET-KEY-1[A-Z0-9]{50,70}", _CRITICAL),
    Form(
        "JSON Web Token",
        ("eyJ",),
        rf"eyJ[{_WORD}]{{10,4000}}\.[{_WORD}]{{10,8000}}\.[{_WORD}]{{5,1000}}",
        Severity.MEDIUM,
    ),
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def find_tokens(text: str) -> Iterator[tuple[int, int, Form]]:
    """Each token of a known form, with where it begins and ends; they may overlap."""
    for form in FORMS:
        if form.inside:
            if any(sign in text for sign in form.signs):
                yield from (
                    (*match.span(), form)
                    for match in form.compiled.finditer(text)
                    if _may_begin(text, match.start(), form)
                )
        else:
            for sign in form.signs:
                yield from _at_sign(text, sign, form)


def _at_sign(text: str, sign: str, form: Form) -> Iterator[tuple[int, int, Form]]:
    position = text.find(sign)
    while position >= 0:
        end = position + len(sign)
        if _may_begin(text, position, form) and (match := form.compiled.match(text, position)):
            end = match.end()
            yield position, end, form
        position = text.find(sign, end)


def _may_begin(text: str, position: int, form: Form) -> bool:
    """Whether no word goes on here; the end of an escape such as `\\n` is no word."""
    before = text[max(0, position - 2) : position]
    if not form.word or not before or not (before[-1] in "_-" or (before[-1].isascii() and before[-1].isalnum())):
        return True
    return before in ("\\n", "\\r", "\\t")


# An AWS secret access key has no sign, only its length and that a generator made it.
_FORTY = re.compile(r"[A-Za-z0-9+/]{40,}")
# A `=` before it is an assignment, one behind it is padding.
_BORDER = frozenset("=._-~%@")
_BEFORE = _BORDER - {"="}
_LONGEST_WORD = re.compile(r"[a-z]{9}|[A-Z]{9}|[0-9]{9}|(?:[a-z]{3,}/){2}")
_CHANGES = re.compile(r"(?<=[a-z])[^a-z]|(?<=[A-Z])[^A-Z]|(?<=[0-9])[^0-9]|(?<=[+/])[^+/]")
_FEWEST_CHANGES = 19
_FEWEST_BITS = 4.3


def find_aws_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where values stand that can only be AWS secret access keys: forty characters from a generator, and no more."""
    for match in _FORTY.finditer(text):
        start, end = match.span()
        if end - start == 40 and not _is_bordered(text, start, end) and _is_generated(match[0]):
            yield start, end


def _is_bordered(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start] in _BEFORE or text[end : end + 1] in _BORDER


def _is_generated(value: str) -> bool:
    """Letters of both cases and digits in turn, as no word, path or encoded text has them."""
    kinds = (str.isupper, str.islower, str.isdigit)
    if not all(any(map(kind, value)) for kind in kinds) or _LONGEST_WORD.search(value):
        return False
    if len(_CHANGES.findall(value)) < _FEWEST_CHANGES or bits_per_character(value) < _FEWEST_BITS:
        return False
    return not _is_encoded_text(value)


def _is_encoded_text(value: str) -> bool:
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return all(byte in b"\t\r\n" or 0x20 <= byte < 0x7F for byte in decoded)


def bits_per_character(value: str) -> float:
    """The Shannon entropy of the characters; 0.0 for an empty text."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())
