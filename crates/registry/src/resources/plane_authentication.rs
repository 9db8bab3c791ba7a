//! `spec.authentication` of a plane: issuers whose tokens are good in that plane only. Fields and rules are those of upstream's
//! `AuthenticationConfiguration`; `auth` has them.

use polder_auth::authn::plane_issuers;
use polder_model::{FieldPath, Value};

use super::checks::Errors;

/// What there is to it, as a structural schema.
pub(super) const SCHEMA: &str = r#"{"type": "object", "description": "Who is known in this plane beside the people the server knows. Whoever is known by it exists in this plane only.", "properties": {
    "jwt": {"type": "array", "maxItems": 8, "description": "Issuers of JSON web tokens (OpenID Connect) that this plane believes.", "items": {
        "type": "object", "required": ["issuer", "claimMappings"], "description": "One issuer, and what is made of its tokens.", "properties": {
            "issuer": {"type": "object", "required": ["url", "audiences"], "description": "Who signs, and for whom.", "properties": {
                "url": {"type": "string", "maxLength": 2048, "description": "The issuer as its tokens name it: an https URL under which it tells its keys."},
                "discoveryURL": {"type": "string", "maxLength": 2048, "description": "Where the issuer tells its keys, if not under its own URL."},
                "certificateAuthority": {"type": "string", "maxLength": 262144, "description": "Authorities that vouch for the issuer's server, in PEM. Those of the system if empty."},
                "audiences": {"type": "array", "maxItems": 64, "description": "Whom a token must be for; one of these is enough.", "items": {"type": "string", "maxLength": 2048, "description": "An audience."}},
                "audienceMatchPolicy": {"type": "string", "description": "MatchAny where there are several audiences."},
                "egressSelectorType": {"type": "string", "description": "Not supported: leave it out."}
            }},
            "claimValidationRules": {"type": "array", "maxItems": 64, "description": "What must be true of a token's claims.", "items": {"type": "object", "description": "One rule: a claim with its value, or an expression.", "properties": {
                "claim": {"type": "string", "maxLength": 1024, "description": "A claim that must be there."},
                "requiredValue": {"type": "string", "maxLength": 4096, "description": "The value the claim must have."},
                "expression": {"type": "string", "maxLength": 16384, "description": "A CEL expression about claims that must be true."},
                "message": {"type": "string", "maxLength": 4096, "description": "What the log says when the expression is false."}
            }}},
            "claimMappings": {"type": "object", "required": ["username"], "description": "How claims become a user.", "properties": {
                "username": {"type": "object", "description": "The user's name.", "properties": {
                    "claim": {"type": "string", "maxLength": 1024, "description": "The claim it comes from."},
                    "prefix": {"type": "string", "maxLength": 1024, "description": "What stands before the claim; needed with a claim, and may be empty."},
                    "expression": {"type": "string", "maxLength": 16384, "description": "A CEL expression about claims that makes it."}
                }},
                "groups": {"type": "object", "description": "The user's groups.", "properties": {
                    "claim": {"type": "string", "maxLength": 1024, "description": "The claim they come from: a text or a list of texts."},
                    "prefix": {"type": "string", "maxLength": 1024, "description": "What stands before each of them; needed with a claim, and may be empty."},
                    "expression": {"type": "string", "maxLength": 16384, "description": "A CEL expression about claims that makes them."}
                }},
                "uid": {"type": "object", "description": "The user's UID.", "properties": {
                    "claim": {"type": "string", "maxLength": 1024, "description": "The claim it comes from."},
                    "expression": {"type": "string", "maxLength": 16384, "description": "A CEL expression about claims that makes it."}
                }},
                "extra": {"type": "array", "maxItems": 64, "description": "What else is known about the user.", "items": {"type": "object", "required": ["key", "valueExpression"], "description": "One thing by its key.", "properties": {
                    "key": {"type": "string", "maxLength": 512, "description": "Its key, with a domain: example.org/team."},
                    "valueExpression": {"type": "string", "maxLength": 16384, "description": "A CEL expression about claims that makes a text or a list of texts."}
                }}}
            }},
            "userValidationRules": {"type": "array", "maxItems": 64, "description": "What must be true of the user that claims became.", "items": {"type": "object", "required": ["expression"], "description": "One rule.", "properties": {
                "expression": {"type": "string", "maxLength": 16384, "description": "A CEL expression about user that must be true."},
                "message": {"type": "string", "maxLength": 4096, "description": "What the log says when it is false."}
            }}}
        }
    }}
}}"#;

/// Says what is wrong with it. What has not changed is not judged again: it would be no news.
pub(super) fn validate(spec: &Value, old: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    let at = |object: &Value| object.get("authentication").cloned().unwrap_or_default();
    let new = at(spec);
    if new.is_null() || old.is_some_and(|old| at(old) == new) {
        return;
    }
    errors.extend(plane_issuers(&new, &path.member("authentication")).1);
}
