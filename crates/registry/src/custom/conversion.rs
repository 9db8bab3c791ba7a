//! Who turns the versions of a custom resource into one another, if they differ in more than their names.

use std::sync::atomic::{AtomicU64, Ordering};

use polder_admission::Endpoint;
use polder_machinery::conversion::ReviewVersion;
use polder_model::Value;

/// A webhook of the plane that converts.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// Unlike that of any other definition, also of one that was here before: what was converted under one is not taken for
    /// what another would have made of it.
    pub(crate) id: u64,
    pub(crate) endpoint: Endpoint,
    /// The form of question it understands, if we speak one of those.
    pub(crate) review: Option<ReviewVersion>,
}

impl Conversion {
    pub(super) fn of(crd: &Value) -> Option<Conversion> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let conversion = crd.at(&["spec", "conversion"])?;
        if conversion.str_at(&["strategy"]) != Some("Webhook") {
            return None;
        }
        let webhook = conversion.get("webhook")?;
        let mut endpoint = Endpoint::read(webhook.get("clientConfig")?);
        if endpoint.authorities.iter().all(u8::is_ascii_whitespace) {
            endpoint.authorities.clear();
        }
        Some(Conversion {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            endpoint,
            review: ReviewVersion::first_known(webhook.array_at(&["conversionReviewVersions"])),
        })
    }
}
