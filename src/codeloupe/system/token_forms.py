"""The forms of tokens by which a vendor's secret is known wherever it is: one table for masking and for finding.

A form is known by its sign, a short text that each such token begins with, or holds where it says `inside`. A token is
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
from codeloupe.system.regex import regex

# Name, signs and pattern of each form, and what is unusual about it: its severity (usually high), that it counts in the
# middle of a word too (`anywhere`), that the sign is not its beginning (`inside`). A backslash at the end of a line: it
# goes on in the next.
_TABLE = r"""
# Clouds and what runs in them.
AWS Access Key :: AKIA ASIA ABIA ACCA :: A[KSBC][IC]A[A-Z0-9]{16}(?![A-Za-z0-9]) :: critical
AWS Bedrock Key :: ABSK :: ABSK[A-Za-z0-9+/]{100,400}={0,2} :: critical
AWS MWS Key :: amzn.mws. :: amzn\.mws\.<uuid>
Alibaba Cloud Key :: LTAI :: LTAI[A-Za-z0-9]{12,20}(?![A-Za-z0-9]) :: critical
Tencent Cloud Key :: AKID :: AKID[A-Za-z0-9]{32}(?![A-Za-z0-9]) :: critical
Yandex Cloud Key :: AQVN :: AQVN<word>{35,38} :: critical
Scaleway Key :: SCW :: SCW[A-Z0-9]{17}(?![A-Za-z0-9]) :: critical
Azure Client Secret :: 8Q~ 7Q~ 0Q~ 1Q~ 2Q~ 3Q~ 4Q~ 5Q~ 6Q~ 9Q~ :: \
    [A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-]) :: critical inside
Azure DevOps Token :: AZDO :: [A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9]) :: inside
Azure Storage Account access key :: AccountKey= :: AccountKey=[A-Za-z0-9+/]{40,}={0,2} :: critical anywhere
Google API Key :: AIza :: AIza<word>{30,} :: anywhere
Google Access Token :: ya29. :: ya29\.<word>{20,}
Google OAuth Secret :: GOCSPX- :: GOCSPX-<word>{28}
Firebase Server Key :: :APA91b AAAA :: AAAA<word>{7}:<word>{140,162}
DigitalOcean Token :: dop_v1_ doo_v1_ dor_v1_ :: do[opr]_v1_[a-f0-9]{64} :: critical
Databricks Token :: dapi :: dapi[a-f0-9]{32}(?:-[0-9])?(?![A-Za-z0-9])
Heroku Token :: HRKU- :: HRKU-<word>{36,80}
Fly.io Token :: fo1_ fm1a_ fm1r_ fm2_ :: (?:fo1_<word>{43}|fm(?:1[ar]|2)_[A-Za-z0-9+/]{80,2000}={0,3})
Netlify Token :: nfp_ nfc_ nfo_ nfu_ :: nf[pcou]_[A-Za-z0-9]{36,60}
Vercel Token :: vcp_ vci_ vca_ vcr_ vck_ :: vc[piark]_[A-Za-z0-9]{24,60}
Render Token :: rnd_ :: rnd_[A-Za-z0-9]{28,40}(?![A-Za-z0-9])
Cloudflare Key :: v1.0- cfut_ cfat_ cfk_ :: (?:v1\.0-[a-f0-9]{24}-[a-f0-9]{146}|cf(?:ut|at|k)_[A-Za-z0-9]{40,60})
PlanetScale Secret :: pscale_ :: pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_.=-]{32,64}
Neon Key :: napi_ :: napi_[a-z0-9]{60,70}
Aiven Secret :: AVNS_ :: AVNS_<word>{19,40}
Supabase Key :: sbp_ sb_secret_ :: (?:sbp_(?:v0_)?[a-f0-9]{40}|sb_secret_<word>{31,44})
Tailscale Key :: tskey- :: tskey-[a-z]+-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20,40}
HashiCorp Vault Token :: hvs. hvb. hvr. :: hv[sbr]\.<word>{24,300} :: critical
HashiCorp Terraform Token :: .atlasv1. :: [A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70} :: critical inside
Doppler Token :: dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. :: \
    dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{40,60}
Pulumi Token :: pul- :: pul-[a-f0-9]{40}
OpenShift Token :: sha256~ :: sha256~<word>{43}(?!<word>)
Octopus Deploy Key :: API- :: API-[A-Z0-9]{26,32}(?![A-Za-z0-9])
# Code, packages and builds.
GitHub Token :: ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ :: (?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}) \
    :: anywhere
GitLab Token :: glpat- gldt- glrt- glptt- glft- glsoat- glcbt- glimt- glagent- gloas- glffct- GR1348941 :: \
    (?:gl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent|oas|ffct)-[.A-Za-z0-9_-]{16,}|GR1348941<word>{20}) :: anywhere
Bitbucket Password :: ATBB :: ATBB[A-Za-z0-9]{28,40}(?![A-Za-z0-9])
Atlassian Token :: ATATT3 ATCTT3 ATSTT3 ATOTT3 :: AT[ACSO]TT3[A-Za-z0-9_=-]{60,250}
Trello Token :: ATTA :: ATTA[a-f0-9]{64,72}
NPM tokens :: npm_ :: npm_[A-Za-z0-9]{30,} :: anywhere
PyPI Token :: pypi- :: pypi-(?=[a-z0-9_-]{0,60}[A-Z])<word>{30,} :: anywhere
RubyGems Key :: rubygems_ :: rubygems_[a-f0-9]{48}
Cargo Token :: cio :: cio[A-Za-z0-9]{32}(?![A-Za-z0-9])
NuGet Key :: oy2 :: oy2[a-z0-9]{43}(?![A-Za-z0-9])
Clojars Token :: CLOJARS_ :: CLOJARS_[a-z0-9]{60}
Docker Hub Token :: dckr_pat_ dckr_oat_ :: dckr_[po]at_<word>{27,36}
Artifactory Credentials :: AKCp cmVmdGtu :: (?:AKCp[A-Za-z0-9]{65,75}|cmVmdGtu[A-Za-z0-9]{50,60})
Buildkite Token :: bkua_ bkaj_ bkpa_ :: bk(?:ua|aj|pa)_[A-Za-z0-9]{40}
CircleCI Token :: CCIPAT_ CCIPRJ_ :: CCIP(?:AT|RJ)_[A-Za-z0-9]{20,24}_[a-f0-9]{40}
SonarQube Token :: squ_ sqp_ sqa_ :: sq[upa]_[a-f0-9]{40}
Snyk Token :: snyk_uat. snyk_sat. :: snyk_[us]at\.[a-z0-9]{8}\.[A-Za-z0-9._-]{40,300}
Sourcegraph Token :: sgp_ :: sgp_(?:[a-fA-F0-9]{16}_|local_)?[A-Za-z0-9]{40,64}
Postman Key :: PMAK- :: PMAK-[a-f0-9]{24}-[a-f0-9]{34}
Prefect Key :: pnu_ pnb_ :: pn[ub]_[A-Za-z0-9]{36}
ReadMe Key :: rdme_ :: rdme_[a-z0-9]{70}
Infracost Key :: ico- :: ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])
WakaTime Key :: waka_ :: waka_<uuid>
# Models.
Anthropic API Key :: sk-ant- :: sk-ant-<word>{16,}
OpenAI Token :: sk- :: sk-(?!ecdsa-|ssh-)<word>{16,}
Hugging Face Token :: hf_ api_org_ :: (?:hf|api_org)_[A-Za-z0-9]{30,}
Groq Key :: gsk_ :: gsk_[A-Za-z0-9]{40,60}
xAI Key :: xai- :: xai-[A-Za-z0-9]{60,100}
Perplexity Key :: pplx- :: pplx-[A-Za-z0-9]{40,60}
Replicate Token :: r8_ :: r8_[A-Za-z0-9]{37,40}
Cerebras Key :: csk- :: csk-[a-z0-9]{40,60}
Fireworks Key :: fw_ :: fw_[A-Za-z0-9]{22,30}(?![A-Za-z0-9_])
NVIDIA Key :: nvapi- :: nvapi-<word>{60,80}
Pinecone Key :: pcsk_ :: pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,70}
LangSmith Key :: lsv2_ ls__ :: (?:lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}|ls__[a-f0-9]{32})
Tavily Key :: tvly- :: tvly-(?:dev-|prod-)?[A-Za-z0-9]{28,40}
Firecrawl Key :: fc- :: fc-[a-f0-9]{32}(?![A-Za-z0-9])
ElevenLabs Key :: sk_ :: sk_[a-f0-9]{48}(?![A-Za-z0-9])
Weights & Biases Key :: wandb_v1_ :: wandb_v1_<word>{40,120}
# Money and shops.
Stripe Access Key :: k_live_ k_test_ :: [rs]k_(?:live|test)_[A-Za-z0-9]{16,} :: anywhere inside
Stripe Webhook Secret :: whsec_ :: whsec_[A-Za-z0-9+/=]{16,} :: anywhere
Square OAuth Secret :: sq0atp- sq0csp- sq0idp- :: sq0(?:atp|csp|idp)-<word>{22,43}
Square Token :: EAAA :: EAAA<word>{60}(?!<word>)
Shopify Token :: shpat_ shpca_ shppa_ shpss_ shptka_ :: shp(?:at|ca|pa|ss|tka)_[a-fA-F0-9]{32}
Razorpay Key :: rzp_live_ rzp_test_ :: rzp_(?:live|test)_[A-Za-z0-9]{14}
Plaid Token :: access-sandbox- access-production- access-development- :: \
    access-(?:sandbox|production|development)-<uuid>
Braintree Token :: access_token$ :: access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}
Flutterwave Key :: FLWSECK :: FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,40}-?X?
Mollie Key :: live_ :: live_[A-Za-z0-9]{30,40}(?!<word>)
EasyPost Key :: EZAK EZTK :: EZ[AT]K[A-Za-z0-9]{54}
Shippo Token :: shippo_ :: shippo_(?:live|test)_[a-fA-F0-9]{40}
Duffel Token :: duffel_ :: duffel_(?:live|test)_[A-Za-z0-9_=-]{43}
# Mail, talk and work.
SendGrid API Key :: SG. :: SG\.<word>{16,64}\.<word>{16,64}
Brevo Key :: xkeysib- xsmtpsib- :: x(?:key|smtp)sib-[a-f0-9]{64}-[A-Za-z0-9]{16}
Mailgun Key :: key- :: key-[a-f0-9]{32}(?![A-Za-z0-9])
Mailchimp Access Key :: -us :: [a-f0-9]{32}-us[0-9]{1,2}(?![A-Za-z0-9]) :: inside
Resend Key :: re_ :: re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,30}
Twilio API Key :: SK :: SK[a-f0-9]{32}(?![A-Za-z0-9])
Slack Token :: xox xapp- xwfp- :: (?:xox[abeposrcd](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|xwfp-[A-\
    Za-z0-9-]{10,}) :: anywhere
Slack Webhook :: hooks.slack.com/ :: hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/+]{20,} :: anywhere
Discord Bot Token :: M N O :: (?=[A-Za-z_.-]{1,60}[0-9])[MNO]<word>{23,27}\.<word>{6}\.<word>{27,38}(?!<word>)
Discord Webhook :: /api/webhooks/ :: /api/webhooks/[0-9]{17,20}/<word>{60,70} :: anywhere
Teams Webhook :: .webhook.office.com/ :: \.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{80,200} :: anywhere
Telegram Bot Token :: :AA :: [0-9]{8,10}:AA<word>{32,33}(?!<word>) :: inside
Facebook Token :: EAA :: EAA[A-Za-z0-9]{90,400}
Twitter Bearer Token :: AAAAAAAAAAAAAAAAAAAA :: A{20}[A-Za-z0-9%]{60,150}
Notion Token :: secret_ ntn_ :: (?:secret_[A-Za-z0-9]{43}|ntn_[A-Za-z0-9]{40,50})(?![A-Za-z0-9])
Linear Key :: lin_api_ lin_oauth_ lin_wh_ :: lin_(?:api|oauth|wh)_[A-Za-z0-9]{32,64}
Asana Token :: / :: [0-2]/[0-9]{15,17}(?:/[0-9]{15,17})?:[a-f0-9]{32}(?![A-Za-z0-9]) :: inside
Airtable Token :: pat :: pat[A-Za-z0-9]{14}\.[a-f0-9]{64}
HubSpot Token :: pat-na pat-eu pat-ap :: pat-(?:na|eu|ap)[0-9]-<uuid>
Figma Token :: figd_ figo_ figu_ figor_ figuh_ :: fig(?:d|o|u|or|uh)r?_<word>{36,64}
Contentful Token :: CFPAT- :: CFPAT-<word>{43}
Typeform Token :: tfp_ :: tfp_[A-Za-z0-9_.=-]{40,64}
Intercom Token :: dG9rO :: dG9rO[A-Za-z0-9+/]{40,120}={0,2}
Frame.io Token :: fio-u- :: fio-u-[A-Za-z0-9_=-]{64}
Dropbox Token :: sl. :: sl\.(?:u\.)?<word>{120,1500}
Mapbox Token :: sk.eyJ tk.eyJ :: [st]k\.eyJ<word>{20,400}\.<word>{15,60}
Adobe Secret :: p8e- p8- :: p8e?-[A-Za-z0-9]{32}(?![A-Za-z0-9])
1Password Token :: ops_eyJ A3- :: (?:ops_eyJ[A-Za-z0-9+/]{200,2000}={0,3}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}\
    -[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5})
# Watching.
Grafana Token :: glsa_ glc_ eyJrIjoi :: (?:glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|glc_[A-Za-z0-9+/]{32,400}={0,3}|eyJrI\
    joi[A-Za-z0-9+/]{50,400}={0,3})
Sentry Token :: sntrys_ sntryu_ :: (?:sntrys_eyJ[A-Za-z0-9+/=_]{60,400}|sntryu_[a-f0-9]{64})
New Relic Key :: NRAK- NRII- NRIQ- NRRA- NRAA- NRJS- :: NR(?:AK|II|IQ|RA|AA|JS)-<word>{19,44}
Datadog Key :: ddapp_ ddpat_ :: dd(?:app|pat)_[A-Za-z0-9]{30,60}
Dynatrace Token :: dt0 :: dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}
LaunchDarkly Key :: sdk- api- mob- :: (?:sdk|api|mob)-<uuid>
PostHog Key :: phx_ phs_ :: ph[xs]_[A-Za-z0-9]{40,60}
Elastic Key :: essu_ :: essu_[A-Za-z0-9+/=]{60,200}
# Keys of no vendor.
Age Secret Key :: AGE-SECRET-KEY-1 :: AGE-SECRET-KEY-1[A-Z0-9]{50,70} :: critical
JSON Web Token :: eyJ :: eyJ<word>{10,4000}\.<word>{10,8000}\.<word>{5,1000} :: medium
"""
_PARTS = {"<word>": "[A-Za-z0-9_-]", "<uuid>": "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"}


class Form(NamedTuple):
    """One form. `pattern` is what the whole token looks like; with `word` it counts only at the start of a word."""

    name: str
    signs: tuple[str, ...]
    pattern: str
    severity: Severity = Severity.HIGH
    word: bool = True
    inside: bool = False


def _read_forms() -> Iterator[Form]:
    for row in re.sub(r"\\\n +", "", _TABLE).strip().split("\n"):
        if not row.startswith("#"):
            name, signs, pattern, notes = (*row.split(" :: "), "")[:4]
            for part, meaning in _PARTS.items():
                pattern = pattern.replace(part, meaning)
            severity = next((one for one in Severity if one.label in notes), Severity.HIGH)
            inside = "inside" in notes
            yield Form(name, tuple(signs.split()), pattern, severity, word="anywhere" not in notes, inside=inside)


FORMS = tuple(_read_forms())
# A pattern is made when it is first needed.
_compiled = cache(re.compile)


def find_tokens(text: str) -> Iterator[tuple[int, int, Form]]:
    """Each token of a known form, with where it begins and ends; they may overlap."""
    for form in FORMS:
        signs = [sign for sign in form.signs if sign in text]
        if form.inside and signs:
            matches = _compiled(form.pattern).finditer(text)
            yield from ((*match.span(), form) for match in matches if _may_begin(text, match.start(), form))
        for sign in () if form.inside else signs:
            position = text.find(sign)
            while position >= 0:
                end = position + len(sign)
                if _may_begin(text, position, form) and (match := _compiled(form.pattern).match(text, position)):
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
_FORTY = regex(r"[A-Za-z0-9+/]{40,}")
_LONGEST_WORD = regex(r"[a-z]{9}|[A-Z]{9}|[0-9]{9}|(?:[a-z]{3,}/){2}")
_CHANGES = regex(r"(?<=[a-z])[^a-z]|(?<=[A-Z])[^A-Z]|(?<=[0-9])[^0-9]|(?<=[+/])[^+/]")


def find_aws_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where values are that can only be AWS secret access keys: forty characters from a generator, and no more."""
    for match in _FORTY.finditer(text):
        start, end = match.span()
        # A `=` before it is an assignment, one after it is padding.
        before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
        if end - start == 40 and before not in "._-~%@" and after not in "=._-~%@" and _is_generated(match[0]):
            yield start, end


def _is_generated(value: str) -> bool:
    """Letters of both cases and digits in turn, as no word, path or encoded text has them."""
    if not all(any(map(kind, value)) for kind in (str.isupper, str.islower, str.isdigit)):
        return False
    if _LONGEST_WORD.search(value) or len(_CHANGES.findall(value)) < 19 or bits_per_character(value) < 4.3:
        return False
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return True
    return not all(byte in b"\t\r\n" or 0x20 <= byte < 0x7F for byte in decoded)


def bits_per_character(value: str) -> float:
    """The Shannon entropy of the characters; 0.0 for an empty text."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())
