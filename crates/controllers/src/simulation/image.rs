//! Which images simulated nodes can get. All but those whose names say that they are not there, as tests of bad rollouts
//! use them.

const MISSING: [&str; 4] = ["non-existent", "nonexistent", ":404", "invalid-image"];

pub(super) fn is_known(image: &str) -> bool {
    !image.is_empty() && !MISSING.iter().any(|part| image.contains(part))
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn images_say_when_they_are_not_there() {
        for (image, expected) in [
            ("registry.k8s.io/pause:3.10", true),
            ("nginx", true),
            ("foo:non-existent", false),
            ("webserver:404", false),
            ("", false),
        ] {
            assert_eq!(is_known(image), expected, "{image}");
        }
    }
}
