//! One issuer of tokens: whether it is the one a token names, whether the token is for us, and who it is of.
//!
//! Order matters: nothing a token says is used before its signature, its time and its audience are good. Where its keys come
//! from is for [`super::keys`].

use polder_model::{SmolStr, Value, format_smolstr};

use super::CREDENTIAL_ID;
use super::expressions::{ClaimsDocument, Expression, UserDocument};
use super::jwt::{KeySet, Unverified};
use crate::{UserInfo, each_once};

/// An entry of `jwt` in a configuration, compiled.
#[derive(Debug)]
pub struct Issuer {
    pub(super) url: SmolStr,
    pub(super) discovery_url: Option<SmolStr>,
    /// PEM; empty means those of the system.
    pub(super) authorities: Box<str>,
    pub(super) audiences: Vec<SmolStr>,
    pub(super) claim_rules: Vec<Rule>,
    pub(super) username: Mapping,
    pub(super) groups: Mapping,
    pub(super) uid: Mapping,
    pub(super) extra: Vec<(SmolStr, Expression)>,
    pub(super) user_rules: Vec<(Expression, SmolStr)>,
    /// Of what it was made from: equal ones are the same issuer.
    pub(super) digest: [u8; 32],
}

/// What must be true of claims.
#[derive(Debug)]
pub(super) enum Rule {
    Claim { name: SmolStr, required: SmolStr },
    Expression { expression: Expression, message: SmolStr },
}

/// Where a part of a user comes from.
#[derive(Debug)]
pub(super) enum Mapping {
    None,
    Claim { name: SmolStr, prefix: SmolStr },
    Expression(Expression),
}

/// Who a token is of, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) user: UserInfo,
    /// In seconds since 1970.
    pub(super) until: i64,
}

impl Issuer {
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Whether its users have an extra by this key, if all goes well.
    pub fn maps_extra(&self, key: &str) -> bool {
        self.extra.iter().any(|(own, _)| own == key)
    }

    /// Who a token is of that one of these keys signed. `Err` is for the log: clients learn nothing.
    pub(super) fn verify(&self, token: &Unverified<'_>, keys: &KeySet, now: i64) -> Result<Verified, String> {
        if token.issuer() != self.url {
            return Err("oidc: id token issued by a different provider".into());
        }
        if !keys.signed(token) {
            return Err("oidc: verify token: failed to verify signature".into());
        }
        let audiences = token.audiences();
        if !self.audiences.iter().any(|own| audiences.contains(&own.as_str())) {
            return Err(format!("oidc: expected audience in {:?} got {audiences:?}", self.audiences));
        }
        let until = token.good_until(now).ok_or("oidc: verify token: token is expired or not valid yet")?;
        Ok(Verified { user: self.user(&token.claims)?, until })
    }

    fn user(&self, claims: &Value) -> Result<UserInfo, String> {
        let document = ClaimsDocument::new(claims);
        let name = self.name(claims, &document)?;
        let own_groups = self.group_names(claims, &document)?;
        let mut user = UserInfo::authenticated(name, own_groups.iter().cloned());
        user.uid = match &self.uid {
            Mapping::None => SmolStr::default(),
            Mapping::Claim { name, .. } => {
                text_claim(claims, name).map_err(|why| format!("oidc: parse uid claim {name:?}: {why}"))?
            }
            Mapping::Expression(expression) => expression
                .text(&document)
                .map_err(|why| format!("oidc: error evaluating uid claim expression: {why}"))?,
        };
        if let Some(id) = claims.str_at(&["jti"]).filter(|id| !id.is_empty()) {
            user.extra.push((SmolStr::new_static(CREDENTIAL_ID), vec![format_smolstr!("JTI={id}")]));
        }
        for (key, expression) in &self.extra {
            let values = expression.texts(&document);
            let values =
                values.map_err(|why| format!("oidc: error evaluating extra claim expression: {why}"))?;
            if !values.is_empty() {
                user.extra.push((key.clone(), values));
            }
        }
        self.check_claims(claims, &document)?;
        let shown = UserDocument::new(&user, &each_once(own_groups));
        for (rule, message) in &self.user_rules {
            let held = rule.holds_for(&shown);
            let failed = |why: &str| format!("oidc: error evaluating user info validation rule: {why}");
            if !held.map_err(|why| failed(&why))? {
                return Err(failed(&format!("validation expression '{}' failed: {message}", rule.source)));
            }
        }
        Ok(user)
    }

    fn name(&self, claims: &Value, document: &ClaimsDocument) -> Result<SmolStr, String> {
        let name = match &self.username {
            Mapping::None => return Err("oidc: no username mapping".into()),
            Mapping::Expression(expression) => expression
                .text(document)
                .map_err(|why| format!("oidc: error evaluating username claim expression: {why}"))?,
            Mapping::Claim { name, prefix } => {
                let value = text_claim(claims, name)
                    .map_err(|why| format!("oidc: parse username claims {name:?}: {why}"))?;
                if name == "email"
                    && claims.get("email_verified").is_some_and(|flag| flag != &Value::Bool(true))
                {
                    return Err("oidc: email not verified".into());
                }
                // An empty claim is nobody, also where upstream would make somebody of the prefix alone.
                if value.is_empty() { value } else { format_smolstr!("{prefix}{value}") }
            }
        };
        if name.is_empty() {
            return Err("oidc: empty username is not allowed".into());
        }
        Ok(name)
    }

    fn group_names(&self, claims: &Value, document: &ClaimsDocument) -> Result<Vec<SmolStr>, String> {
        match &self.groups {
            Mapping::None => Ok(Vec::new()),
            Mapping::Expression(expression) => expression
                .texts(document)
                .map_err(|why| format!("oidc: error evaluating group claim expression: {why}")),
            Mapping::Claim { name, prefix } => {
                let wrong =
                    || format!("oidc: parse groups claim {name:?}: not a string or a list of strings");
                let prefixed = |group: &Value| Some(format_smolstr!("{prefix}{}", group.as_str()?));
                match claims.get(name) {
                    None | Some(Value::Null) => Ok(Vec::new()),
                    Some(Value::Array(all)) => {
                        all.iter().map(prefixed).collect::<Option<_>>().ok_or_else(wrong)
                    }
                    Some(one) => prefixed(one).map(|one| vec![one]).ok_or_else(wrong),
                }
            }
        }
    }

    fn check_claims(&self, claims: &Value, document: &ClaimsDocument) -> Result<(), String> {
        for rule in &self.claim_rules {
            match rule {
                Rule::Claim { name, required } => {
                    if claims.str_at(&[name]) != Some(required) {
                        return Err(format!("oidc: required claim {name} value does not match"));
                    }
                }
                Rule::Expression { expression, message } => {
                    let failed =
                        |why: &str| format!("oidc: error evaluating claim validation expression: {why}");
                    if !expression.holds(document).map_err(|why| failed(&why))? {
                        let source = &expression.source;
                        return Err(failed(&format!("validation expression '{source}' failed: {message}")));
                    }
                }
            }
        }
        Ok(())
    }
}

fn text_claim(claims: &Value, name: &str) -> Result<SmolStr, &'static str> {
    let value = claims.get(name).ok_or("claim not present")?;
    value.as_str().map(SmolStr::new).ok_or("not a string")
}

#[cfg(test)]
mod tests {
    use polder_model::{FieldPath, json};

    use super::super::configuration::plane_issuers;
    use super::super::jwt::testing::curve;
    use super::*;

    const NOW: i64 = 1_000;

    fn entry(mappings: Value) -> Value {
        json!({"issuer": {"url": "https://i", "audiences": ["polder"]}, "claimMappings": mappings})
    }

    fn claims(changes: &[(&str, Value)]) -> Value {
        let mut claims = json!({"iss": "https://i", "aud": "polder", "sub": "ann", "exp": 2000, "jti": "j"});
        for (name, value) in changes {
            match value {
                Value::Null => drop(claims.remove_at(&[name])),
                value => claims.set_at(&[name], value.clone()),
            }
        }
        claims
    }

    fn verify(entry: &Value, claims: &Value) -> Result<UserInfo, String> {
        let (issuers, errors) = plane_issuers(&json!({"jwt": [(entry.clone())]}), &FieldPath::ROOT);
        assert_eq!(errors, []);
        let key = curve("P-256");
        let token = key.token("ES256", "k", claims);
        let keys = KeySet::parse(&key.set("k").to_vec()).unwrap();
        let token = Unverified::parse(&token).unwrap();
        issuers[0].verify(&token, &keys, NOW).map(|verified| verified.user)
    }

    fn simple() -> Value {
        entry(
            json!({"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": "g:"}}),
        )
    }

    #[test]
    fn users_are_made_of_claims() {
        let user = verify(&simple(), &claims(&[("groups", json!(["a", "b", "a"]))])).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("oidc:ann", ""));
        assert_eq!(user.groups, ["g:a", "g:b", "system:authenticated"]);
        assert_eq!(user.extra, [(CREDENTIAL_ID.into(), vec!["JTI=j".into()])]);
        let one = verify(&simple(), &claims(&[("groups", json!("a"))])).unwrap();
        assert_eq!(one.groups, ["g:a", "system:authenticated"]);
        let rich = entry(json!({
            "username": {"expression": "claims.sub + '@' + claims.org"},
            "groups": {"expression": "claims.roles.map(r, 'role:' + r)"},
            "uid": {"claim": "sub"},
            "extra": [{"key": "example.org/org", "valueExpression": "claims.org"}],
        }));
        let told = claims(&[("org", json!("acme")), ("roles", json!(["x"]))]);
        let user = verify(&rich, &told).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann@acme", "ann"));
        assert_eq!(user.groups, ["role:x", "system:authenticated"]);
        assert_eq!(user.extra[1], ("example.org/org".into(), vec!["acme".into()]));
    }

    #[test]
    fn tokens_that_are_not_for_us_are_refused() {
        for (name, value, expected) in [
            ("iss", json!("https://j"), "different provider"),
            ("iss", json!("https://i/"), "different provider"),
            ("aud", json!("other"), "expected audience"),
            ("aud", json!(["other", "else"]), "expected audience"),
            ("aud", Value::Null, "expected audience"),
            ("exp", json!(999), "expired"),
            ("exp", Value::Null, "expired"),
            ("nbf", json!(1301), "not valid yet"),
            ("sub", Value::Null, "claim not present"),
            ("sub", json!(7), "not a string"),
            ("sub", json!(""), "empty username"),
            ("groups", json!([1]), "parse groups claim"),
        ] {
            let error = verify(&simple(), &claims(&[(name, value)])).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
        assert!(verify(&simple(), &claims(&[("aud", json!(["other", "polder"]))])).is_ok());
    }

    #[test]
    fn rules_refuse() {
        let with = |rules: &str, value: Value| {
            let mut entry = simple();
            entry.set_at(&[rules], value);
            entry
        };
        let rows = [
            (
                with("claimValidationRules", json!([{"claim": "hd", "requiredValue": "x"}])),
                "required claim hd",
            ),
            (
                with(
                    "claimValidationRules",
                    json!([{"expression": "claims.exp < 1.0", "message": "too long"}]),
                ),
                "validation expression 'claims.exp < 1.0' failed: too long",
            ),
            (
                with("claimValidationRules", json!([{"expression": "claims.nothing == 1"}])),
                "no such key: nothing",
            ),
            (
                with(
                    "userValidationRules",
                    json!([{"expression": "!user.username.startsWith('oidc:')", "message": "m"}]),
                ),
                "failed: m",
            ),
            (entry(json!({"username": {"expression": "''"}})), "empty username"),
            (entry(json!({"username": {"expression": "true"}})), "must return a string"),
        ];
        for (entry, expected) in rows {
            let error = verify(&entry, &claims(&[])).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let email = entry(json!({"username": {"claim": "email", "prefix": ""}}));
        let told =
            |flag: Value| verify(&email, &claims(&[("email", json!("a@b")), ("email_verified", flag)]));
        assert_eq!(told(json!(true)).unwrap().name, "a@b");
        assert_eq!(told(Value::Null).unwrap().name, "a@b");
        assert!(told(json!(false)).is_err() && told(json!("true")).is_err());
    }

    /// A key that is not the issuer's signs nothing.
    #[test]
    fn others_cannot_sign() {
        let (issuers, _) = plane_issuers(&json!({"jwt": [(simple())]}), &FieldPath::ROOT);
        let (own, other) = (curve("P-256"), curve("P-256"));
        let keys = KeySet::parse(&own.set("k").to_vec()).unwrap();
        let token = other.token("ES256", "k", &claims(&[]));
        let error = issuers[0].verify(&Unverified::parse(&token).unwrap(), &keys, NOW).unwrap_err();
        assert!(error.contains("failed to verify signature"), "{error}");
    }
}
