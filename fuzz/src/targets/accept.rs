//! `Accept` headers: what is picked is something the header names and the place has.

use polder_server::negotiate::{Form, Media, Messages, accept};

pub const WORDS: &[&str] = &[
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*", "application/*", "text/html", ",", ", ",
    ";", ";as=Table", ";as=PartialObjectMetadata", ";as=PartialObjectMetadataList", ";as=APIGroupDiscoveryList", ";g=meta.k8s.io",
    ";g=apidiscovery.k8s.io", ";v=v1", ";v=v1beta1", ";v=v2", ";q=0.5", ";q=1e9", ";q=nan", ";q=-1", ";q=", ";stream=watch", ";pretty=1", "\"", "=",
    ";charset=utf-8", ";x=y", " ", "é",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for messages in [Messages::None, Messages::Metadata, Messages::All] {
        let Ok(picked) = accept(Some(text), messages) else { continue };
        crate::accepted();
        let is_named = |part: &str| text.contains(part);
        let is_media = |media: &str| text.to_ascii_lowercase().contains(media);
        match (picked.media, picked.form) {
            (Media::Protobuf, form) => {
                assert!(is_media("application/vnd.kubernetes.protobuf") && messages != Messages::None);
                assert!(messages == Messages::All || matches!(form, Form::Metadata { .. }));
                assert!(!matches!(form, Form::Table { .. } | Form::Discovery));
            }
            (Media::Yaml, _) => assert!(is_media("application/yaml")),
            (Media::Json, _) => {
                assert!(text.trim().is_empty() || is_media("application/json") || is_named("*"), "{text:?}");
            }
        }
        match picked.form {
            Form::Whole => {}
            Form::Table { v1beta1 } => assert!(is_named("Table") && (!v1beta1 || is_named("v1beta1"))),
            Form::Metadata { v1beta1 } => {
                assert!(is_named("PartialObjectMetadata") && (!v1beta1 || is_named("v1beta1")));
            }
            Form::Discovery => assert!(is_named("APIGroupDiscoveryList")),
        }
        // A clause that nobody serves changes nothing, as long as it is read at all.
        if text.matches(',').count() < 60 && !text.trim().is_empty() {
            assert_eq!(accept(Some(&format!("{text},text/x-unknown;q=0.1")), messages).ok(), Some(picked));
        }
    }
}
