//! The `continue` token of a paginated list: at which revision to go on, and after which key.
//!
//! Clients treat it as opaque, but it comes back from outside: a decoded token never names a key above its list.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use polder_model::{Value, value};

/// No key is long enough for a longer token.
const TOKEN_LEN_MAX: usize = 4096;
const VERSION: &str = "meta.k8s.io/v1";

/// Go's unpadded URL alphabet, as lenient about the last bits as Go is.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision all pages are read at, never zero. -1 goes on at the latest, giving up consistency.
    pub revision: i64,
    /// The first key that may be on the page, relative to the list.
    pub start: String,
    /// How many objects follow, when the page before has told. Ours alone: upstream asks etcd for each page.
    pub remaining: Option<u64>,
}

/// A token that was not made here; clients see upstream's wording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContinueError {
    #[error("continue key is not valid: {0}")]
    Invalid(String),
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    NoRevision,
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    NoStart,
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    UnknownVersion(String),
}

impl ContinueToken {
    /// Goes on right after the last key of a page.
    pub fn after(last_key: &str, revision: i64) -> ContinueToken {
        ContinueToken { revision, start: format!("{last_key}\0"), remaining: None }
    }

    pub fn encode(&self) -> String {
        let mut json = format!("{{\"v\":\"{VERSION}\",\"rv\":{},\"start\":", self.revision).into_bytes();
        value::write_string(&self.start, &mut json);
        if let Some(remaining) = self.remaining {
            json.extend_from_slice(format!(",\"remaining\":{remaining}").as_bytes());
        }
        json.push(b'}');
        BASE64.encode(json)
    }

    pub fn decode(token: &str) -> Result<ContinueToken, ContinueError> {
        if token.len() > TOKEN_LEN_MAX {
            return Err(ContinueError::Invalid(format!("longer than {TOKEN_LEN_MAX} bytes")));
        }
        let invalid = ContinueError::Invalid;
        let bytes = BASE64.decode(token).map_err(|error| invalid(base64_problem(token, &error)))?;
        let token = Value::parse(&bytes).map_err(|error| {
            let text = error.to_string();
            invalid(if text.starts_with("EOF") { "unexpected end of JSON input".into() } else { text })
        })?;
        if !matches!(token, Value::Object(_) | Value::Null) {
            let found = go_type(&token);
            return Err(invalid(format!(
                "json: cannot unmarshal {found} into Go value of type storage.continueToken"
            )));
        }
        let version = text_member(&token, "v")?;
        let revision = match token.get("rv") {
            None | Some(Value::Null) => 0,
            Some(Value::Int(number)) => *number,
            Some(other) => {
                let shown = if matches!(other, Value::Float(_)) {
                    format!("number {other}")
                } else {
                    go_type(other).into()
                };
                return Err(invalid(format!(
                    "json: cannot unmarshal {shown} into Go struct field continueToken.rv of type int64"
                )));
            }
        };
        let start = text_member(&token, "start")?;
        if version != VERSION {
            return Err(ContinueError::UnknownVersion(version.into()));
        }
        if revision == 0 {
            return Err(ContinueError::NoRevision);
        }
        if start.is_empty() {
            return Err(ContinueError::NoStart);
        }
        // Steps like `..` could lead out of the list: to another namespace, kind or plane.
        let relative = start.strip_prefix('/').unwrap_or(start);
        let clean = relative.is_empty() || relative.split('/').all(|step| !matches!(step, "" | "." | ".."));
        if !clean {
            return Err(invalid(start.into()));
        }
        // Not upstream's, so nobody is told that it is wrong: then it is not known.
        let remaining = match token.get("remaining") {
            Some(Value::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        Ok(ContinueToken { revision, start: relative.into(), remaining })
    }
}

fn text_member<'v>(token: &'v Value, name: &str) -> Result<&'v str, ContinueError> {
    match token.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(ContinueError::Invalid(format!(
            "json: cannot unmarshal {} into Go struct field continueToken.{name} of type string",
            go_type(other)
        ))),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        other => other.type_name(),
    }
}

fn base64_problem(token: &str, error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        // A lone last character; upstream names the start of its group.
        base64::DecodeError::InvalidLength(_) => token.len() / 4 * 4,
        base64::DecodeError::InvalidPadding => token.find('=').unwrap_or(token.len()),
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xorshift::XorShift;

    #[track_caller]
    fn check(token: &str, expected: Result<(&str, i64), &str>) {
        let found = ContinueToken::decode(token);
        let found = found.map(|token| (token.start, token.revision)).map_err(|error| error.to_string());
        let expected = expected.map(|(start, revision)| (start.to_string(), revision));
        assert_eq!(found, expected.map_err(|text| format!("continue key is not valid: {text}")), "{token}");
    }

    #[test]
    fn decodes_like_upstream() {
        let version = "(version meta.k8s.io/v1)";
        let rows = [
            (r#","rv":5,"start":"ns/a\u0000""#, Ok(("ns/a\0", 5))),
            (r#","rv":-1,"start":"/ns/a""#, Ok(("ns/a", -1))),
            (r#","rv":1,"start":"..a/.b""#, Ok(("..a/.b", 1))),
            (r#","rv":1,"start":"/""#, Ok(("", 1))),
            (r#","rv":0,"start":"a""#, Err(&*format!("incorrect encoded start resourceVersion {version}"))),
            (r#","start":"a""#, Err(&format!("incorrect encoded start resourceVersion {version}"))),
            (r#","rv":1,"start":"""#, Err(&format!("encoded start key empty {version}"))),
            (r#","rv":1"#, Err(&format!("encoded start key empty {version}"))),
            (r#","rv":1,"start":"../a""#, Err("../a")),
            (r#","rv":1,"start":"a/../b""#, Err("a/../b")),
            (r#","rv":1,"start":"a//b""#, Err("a//b")),
            (r#","rv":1,"start":"a/""#, Err("a/")),
            (r#","rv":1,"start":"./a""#, Err("./a")),
            (r#","rv":1,"start":"//a""#, Err("//a")),
            (
                r#","rv":"1","start":"a""#,
                Err("json: cannot unmarshal string into Go struct field continueToken.rv of type int64"),
            ),
            (
                r#","rv":1.5,"start":"a""#,
                Err("json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64"),
            ),
            (
                r#","rv":1,"start":5"#,
                Err("json: cannot unmarshal number into Go struct field continueToken.start of type string"),
            ),
        ];
        for (members, expected) in rows {
            check(&BASE64.encode(format!(r#"{{"v":"meta.k8s.io/v1"{members}}}"#)), expected);
        }
        let unknown = "server does not recognize this encoded version ";
        check(&BASE64.encode(r#"{"v":"v2","rv":1,"start":"a"}"#), Err(&format!("{unknown}v2")));
        check(&BASE64.encode("{}"), Err(unknown));
        check(&BASE64.encode("null"), Err(unknown));
        check(
            &BASE64.encode("[]"),
            Err("json: cannot unmarshal array into Go value of type storage.continueToken"),
        );
        check(&BASE64.encode("{"), Err("unexpected end of JSON input"));
        check("", Err("unexpected end of JSON input"));
        check("!", Err("illegal base64 data at input byte 0"));
        check("a", Err("illegal base64 data at input byte 0"));
        check("abcde", Err("illegal base64 data at input byte 4"));
        check("abc=", Err("illegal base64 data at input byte 3"));
        check("a b", Err("illegal base64 data at input byte 1"));
        check(&"A".repeat(5000), Err("longer than 4096 bytes"));
    }

    #[test]
    fn encodes_like_upstream() {
        let token = ContinueToken::after("ns/a", 5);
        assert_eq!(token.encode(), "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJucy9hXHUwMDAwIn0");
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        let counted = ContinueToken { remaining: Some(1_500), ..ContinueToken::after("ns/a", 5) };
        assert_eq!(ContinueToken::decode(&counted.encode()), Ok(counted));
        for forged in ["-1", "1.5", "\"7\"", "{}", "null"] {
            let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":5,"start":"a","remaining":{forged}}}"#);
            let token = ContinueToken::decode(&BASE64.encode(json)).unwrap();
            assert_eq!(token.remaining, None, "{forged}");
        }
    }

    #[test]
    fn no_token_panics() {
        let mut random = XorShift(0xc0de);
        let whole = ContinueToken::after("ns/a", 5).encode();
        for _ in 0..20_000 {
            let mut token = whole.clone().into_bytes();
            for _ in 0..random.below(4) {
                let at = random.below(token.len());
                token[at] = *random.pick(b"AZaz09-_=+/ \n");
            }
            token.truncate(random.below(token.len() + 1));
            let _outcome = ContinueToken::decode(std::str::from_utf8(&token).unwrap());
        }
    }
}
