//! Bootstrap tokens: `abcdef.0123456789abcdef`, good while a secret of the plane says so. Whoever knows planes reads the
//! secret; here is what it must say. Its user exists in that plane only.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::{PlaneId, SmolStr, Value, format_smolstr};

use crate::UserInfo;

const GROUP: &str = "system:bootstrappers";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The longest name of a group behind `system:bootstrappers:`.
const GROUP_LEN_MAX: usize = 256;

/// Where the secrets are.
pub const BOOTSTRAP_NAMESPACE: &str = "kube-system";
/// What their names begin with.
pub const BOOTSTRAP_PREFIX: &str = "bootstrap-token-";

/// A bearer token of this form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BootstrapToken<'a> {
    id: &'a str,
    secret: &'a str,
}

impl<'a> BootstrapToken<'a> {
    /// `None` for tokens of another form.
    pub fn parse(token: &'a str) -> Option<BootstrapToken<'a>> {
        let (id, secret) = token.split_once('.')?;
        let plain = |text: &str, len: usize| {
            text.len() == len && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        (plain(id, 6) && plain(secret, 16)).then_some(BootstrapToken { id, secret })
    }

    pub fn secret_name(&self) -> String {
        format!("{BOOTSTRAP_PREFIX}{}", self.id)
    }

    /// Who it is of, if the secret of its name says so. `Err` is for the log.
    pub fn user(&self, plane: PlaneId, secret: &Value, now: i64) -> Result<UserInfo, &'static str> {
        if secret.at(&["metadata", "deletionTimestamp"]).is_some_and(|value| !value.is_null()) {
            return Err("is deleted and awaiting removal");
        }
        if secret.str_at(&["type"]) != Some(SECRET_TYPE) {
            return Err("has an invalid type");
        }
        let text = |key: &str| {
            let encoded = secret.str_at(&["data", key])?;
            String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
        };
        let own = text("token-secret").unwrap_or_default();
        if verify_slices_are_equal(own.as_bytes(), self.secret.as_bytes()).is_err() {
            return Err("has an invalid value for key token-secret");
        }
        if text("token-id").as_deref() != Some(self.id) {
            return Err("has an invalid value for key token-id");
        }
        if let Some(expiration) = text("expiration").filter(|text| !text.is_empty()) {
            let ends: jiff::Timestamp =
                expiration.parse().map_err(|_| "has an expiration that is no time")?;
            if ends.as_second() <= now {
                return Err("has expired");
            }
        }
        if text("usage-bootstrap-authentication").as_deref() != Some("true") {
            return Err("is not marked usage-bootstrap-authentication=true");
        }
        let extra = text("auth-extra-groups").unwrap_or_default();
        let mut groups = vec![SmolStr::new_static(GROUP)];
        for group in extra.split(',').filter(|_| !extra.is_empty()) {
            if !is_group(group) {
                return Err("has an invalid value for key auth-extra-groups");
            }
            groups.push(SmolStr::new(group));
        }
        let mut user = UserInfo::authenticated(format_smolstr!("system:bootstrap:{}", self.id), groups);
        user.home = Some(plane);
        Ok(user)
    }
}

fn is_group(name: &str) -> bool {
    let own = name.strip_prefix("system:bootstrappers:").unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    own.len() <= GROUP_LEN_MAX
        && own.bytes().last().is_some_and(plain)
        && own.bytes().all(|byte| plain(byte) || byte == b':' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut secret = json!({"type": SECRET_TYPE});
        let own = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:a,system:bootstrappers:kubeadm:default-node-token"),
        ];
        for (key, value) in own.iter().chain(changes) {
            secret.set_at(&["data", key], STANDARD.encode(value));
        }
        secret
    }

    fn user(secret: &Value) -> Result<UserInfo, &'static str> {
        BootstrapToken::parse("abcdef.0123456789abcdef").unwrap().user(PlaneId(7), secret, 1_000)
    }

    #[test]
    fn forms() {
        assert_eq!(
            BootstrapToken::parse("abcdef.0123456789abcdef").unwrap().secret_name(),
            "bootstrap-token-abcdef"
        );
        for text in [
            "",
            "abcdef",
            "abcde.0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcde!",
            "abcdef.0123456789abcdef.x",
        ] {
            assert!(BootstrapToken::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn secrets_decide() {
        let good = user(&secret(&[])).unwrap();
        assert_eq!((good.name.as_str(), good.home), ("system:bootstrap:abcdef", Some(PlaneId(7))));
        assert_eq!(good.groups[1], "system:bootstrappers:a");
        assert!(good.in_group(GROUP) && good.in_group("system:authenticated"));
        assert!(user(&secret(&[("expiration", "1970-01-01T00:16:41Z")])).is_ok());
        for (key, value) in [
            ("expiration", "1970-01-01T00:16:40Z"),
            ("expiration", "soon"),
            ("token-secret", "0123456789abcdeg"),
            ("token-secret", ""),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "false"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
            ("auth-extra-groups", "system:bootstrappers:A"),
        ] {
            assert!(user(&secret(&[(key, value)])).is_err(), "{key}={value}");
        }
        let mut other = secret(&[]);
        other.set_at(&["type"], "Opaque");
        assert!(user(&other).is_err());
        let mut going = secret(&[]);
        going.set_at(&["metadata", "deletionTimestamp"], "1970-01-01T00:00:00Z");
        assert!(user(&going).is_err());
    }
}
