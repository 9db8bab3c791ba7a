//! What the client can read: media types, and the forms of an object it asks for.

use polder_model::Status;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) media: Media,
    pub(crate) form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Yaml,
}

impl Media {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
        }
    }
}

/// What of an object is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    Whole,
    Table {
        v1beta1: bool,
    },
    Metadata {
        v1beta1: bool,
    },
    /// The aggregated form of discovery.
    Discovery,
}

const SUPPORTED: [&str; 2] = ["application/json", "application/yaml"];

/// One clause of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: u32,
}

/// Picks the first clause we can serve, in the client's order of preference.
pub(crate) fn accept(header: Option<&str>) -> Result<Accepted, Status> {
    let plain = Accepted { media: Media::Json, form: Form::Whole };
    let Some(header) = header.filter(|header| !header.trim().is_empty()) else { return Ok(plain) };
    let mut clauses: Vec<Clause<'_>> = header.split(',').take(64).map(clause).collect();
    clauses.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    clauses.iter().find_map(served).ok_or_else(|| Status::not_acceptable(&SUPPORTED))
}

fn clause(text: &str) -> Clause<'_> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let mut quality = 1000;
    let mut parameters = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_matches('"');
        if key == "q" {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped to 0..=1000"
            )]
            let thousandths = (value.parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u32;
            quality = thousandths;
        } else {
            parameters.push((key, value));
        }
    }
    Clause { media, parameters, quality }
}

fn served(clause: &Clause<'_>) -> Option<Accepted> {
    let media = match clause.media {
        "application/json" | "*/*" | "application/*" => Media::Json,
        "application/yaml" => Media::Yaml,
        _ => return None,
    };
    let find = |key: &str| clause.parameters.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
    let form = match (find("as"), find("g"), find("v")) {
        (None, None, None) => Form::Whole,
        (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Form::Discovery,
        (Some(form), Some("meta.k8s.io"), Some(version @ ("v1" | "v1beta1"))) => {
            let v1beta1 = version == "v1beta1";
            match form {
                "Table" => Form::Table { v1beta1 },
                "PartialObjectMetadata" | "PartialObjectMetadataList" => Form::Metadata { v1beta1 },
                _ => return None,
            }
        }
        _ => return None,
    };
    let known = ["as", "g", "v", "stream", "pretty", "charset", "profile", "sv", "export"];
    let usable = clause.parameters.iter().all(|(key, _)| known.contains(key));
    usable.then_some(Accepted { media, form })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_in_order_of_preference() {
        let rows = [
            ("", "Json Whole"),
            ("*/*", "Json Whole"),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                "Json Table { v1beta1: false }",
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                "Json Metadata { v1beta1: false }",
            ),
            ("application/yaml", "Yaml Whole"),
            ("application/json;q=0.1, application/yaml;q=0.9", "Yaml Whole"),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                "Json Whole",
            ),
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "Json Discovery"),
            ("application/vnd.kubernetes.protobuf", "refused"),
            ("text/html;q=0.3", "refused"),
        ];
        for (header, expected) in rows {
            let found = accept(Some(header)).map(|one| format!("{:?} {:?}", one.media, one.form));
            assert_eq!(found.unwrap_or_else(|_| "refused".into()), expected, "{header}");
        }
    }
}
