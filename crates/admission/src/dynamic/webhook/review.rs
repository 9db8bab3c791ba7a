//! What a webhook is asked.

use polder_model::{Object, SmolStr, Value};

use super::ReviewVersion;

/// A review of a request, and the id its answer must have.
pub(crate) fn review(
    version: ReviewVersion,
    described: &Value,
    object: Option<&Value>,
    old: Option<&Value>,
    seed: u64,
) -> (SmolStr, Vec<u8>) {
    let uid = uid(seed);
    let mut request = described.clone();
    request.set_at(&["uid"], uid.clone());
    // A review is written once and thrown away: the objects are written into it, not copied first.
    let mut body = Vec::with_capacity(4096);
    let mut review = Object::new();
    review.insert("kind", "AdmissionReview");
    review.insert("apiVersion", version.api_version());
    review.write(&mut body);
    body.pop();
    body.extend_from_slice(b",\"request\":");
    request.write(&mut body);
    body.pop();
    for (name, value) in [("object", object), ("oldObject", old)] {
        body.extend_from_slice(b",\"");
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(b"\":");
        match value {
            Some(value) => value.write(&mut body),
            None => body.extend_from_slice(b"null"),
        }
    }
    body.extend_from_slice(b"}}");
    (uid, body)
}

/// A UUID made of a number nobody can guess.
fn uid(seed: u64) -> SmolStr {
    let mix = |seed: u64| {
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let (high, low) = (mix(seed), mix(seed ^ 0x9e37_79b9_7f4a_7c15));
    let text = format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    );
    SmolStr::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::parse;

    #[test]
    fn a_review_has_all_it_needs() {
        let described = parse(r#"{"operation":"CREATE"}"#);
        let object = parse(r#"{"a":1}"#);
        let (uid, body) = review(ReviewVersion::V1, &described, Some(&object), None, 7);
        let found = Value::parse(&body).unwrap();
        let mut expected = parse(
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"operation":"CREATE","object":{"a":1},"oldObject":null}}"#,
        );
        expected.set_at(&["request", "uid"], uid.clone());
        assert_eq!(found.to_string(), {
            let mut sorted = expected.clone();
            for name in ["object", "oldObject"] {
                let value = sorted.remove_at(&["request", name]).unwrap();
                sorted.set_at(&["request", name], value);
            }
            sorted.to_string()
        });
        assert_eq!(uid.len(), 36);
        assert_ne!(super::uid(1), super::uid(2));
    }
}
