//! Secrets of our own making, by the shapes that issuers describe: made when the test runs, so that none stands in this
//! repository.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// So many characters of an alphabet, the same for the same seed.
pub fn letters(alphabet: &[u8], count: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(alphabet[(state >> 33) as usize % alphabet.len()])
    };
    (0..count).map(|_| next()).collect()
}

const ANY: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const HEX: &[u8] = b"0123456789abcdef";
const CAPITALS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

pub fn any(count: usize, seed: u64) -> String {
    letters(ANY, count, seed)
}

pub fn hex(count: usize, seed: u64) -> String {
    letters(HEX, count, seed)
}

/// A secret of each family, by the shape that its issuer describes.
pub fn samples(seed: u64) -> Vec<(&'static str, String)> {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"{}"}}"#, hex(8, seed)));
    vec![
        ("github", format!("ghp_{}", any(36, seed))),
        (
            "github-fine-grained",
            format!("github_pat_{}_{}", any(22, seed), any(59, seed + 1)),
        ),
        ("gitlab", format!("glpat-{}", any(20, seed))),
        ("npm", format!("npm_{}", any(36, seed))),
        ("pypi", format!("pypi-AgEIcHlwaS5vcmc{}", any(140, seed))),
        ("docker", format!("dckr_pat_{}", any(27, seed))),
        ("aws-key-id", format!("AKIA{}", letters(CAPITALS, 16, seed))),
        ("google-api-key", format!("AIza{}", any(35, seed))),
        ("google-oauth", format!("GOCSPX-{}", any(28, seed))),
        ("digitalocean", format!("dop_v1_{}", hex(64, seed))),
        ("databricks", format!("dapi{}", hex(32, seed))),
        ("hashicorp-vault", format!("hvs.{}", any(90, seed))),
        (
            "openai",
            format!("sk-proj-{}T3BlbkFJ{}", any(74, seed), any(74, seed + 1)),
        ),
        ("anthropic", format!("sk-ant-api03-{}AA", any(93, seed))),
        ("groq", format!("gsk_{}", any(52, seed))),
        ("hugging-face", format!("hf_{}", any(34, seed))),
        (
            "slack",
            format!(
                "xoxb-{}-{}-{}",
                letters(b"0123456789", 12, seed),
                letters(b"0123456789", 12, seed + 1),
                any(24, seed)
            ),
        ),
        (
            "slack-webhook",
            format!(
                "https://hooks.slack.com/services/T{}/B{}/{}",
                letters(CAPITALS, 8, seed),
                letters(CAPITALS, 8, seed + 1),
                any(24, seed)
            ),
        ),
        ("stripe", format!("sk_live_{}", any(24, seed))),
        ("shopify", format!("shpat_{}", hex(32, seed))),
        (
            "sendgrid",
            format!("SG.{}.{}", any(22, seed), any(43, seed + 1)),
        ),
        ("twilio", format!("SK{}", hex(32, seed))),
        (
            "notion",
            format!("ntn_{}{}", letters(b"0123456789", 11, seed), any(35, seed)),
        ),
        ("linear", format!("lin_api_{}", any(40, seed))),
        ("figma", format!("figd_{}", any(40, seed))),
        (
            "grafana",
            format!("glsa_{}_{}", any(32, seed), hex(8, seed)),
        ),
        (
            "tailscale",
            format!("tskey-auth-{}-{}", any(12, seed), any(32, seed)),
        ),
        ("vercel", format!("vcp_{}", any(40, seed))),
        (
            "telegram-bot",
            format!("{}:AA{}", letters(b"123456789", 10, seed), any(33, seed)),
        ),
        (
            "age",
            format!(
                "AGE-SECRET-KEY-1{}",
                letters(b"QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58, seed)
            ),
        ),
        (
            "onrecord",
            format!(
                "onr_{}_{}",
                letters(b"0123456789abcdefghijklmnopqrstuvwxyz", 12, seed),
                letters(b"0123456789abcdefghijklmnopqrstuvwxyz", 50, seed)
            ),
        ),
        ("jwt", format!("{header}.{claims}.{}", any(43, seed))),
    ]
}
