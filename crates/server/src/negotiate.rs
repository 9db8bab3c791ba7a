//! What the client can read: media types, and the forms of an object it asks for.

use polder_machinery::protobuf::MEDIA_TYPE as PROTOBUF;
use polder_model::Status;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub media: Media,
    pub form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Media {
    Json,
    Yaml,
    Protobuf,
}

impl Media {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
            Media::Protobuf => PROTOBUF,
        }
    }
}

/// What of an object is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
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

/// What can be had in protobuf at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// Documents that are no objects.
    None,
    /// Of custom resources, the metadata.
    Metadata,
    All,
}

const SUPPORTED: [&str; 3] = ["application/json", "application/yaml", PROTOBUF];

/// One clause of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: u32,
}

/// Picks the first clause we can serve, in the client's order of preference.
pub fn accept(header: Option<&str>, messages: Messages) -> Result<Accepted, Status> {
    let Some(header) = header.filter(|header| !header.trim().is_empty()) else {
        return Ok(Accepted { media: Media::Json, form: Form::Whole });
    };
    let found = clauses(header).iter().find_map(|clause| served(clause, messages));
    found.ok_or_else(|| {
        let supported = if messages == Messages::None { &SUPPORTED[..2] } else { &SUPPORTED };
        Status::not_acceptable(supported)
    })
}

/// How a failure is written: it has no other forms, so clauses that ask for one do not count.
pub(crate) fn accept_failure(header: Option<&str>) -> Media {
    let clauses = clauses(header.unwrap_or_default());
    let mut served = clauses.iter().filter_map(|clause| served(clause, Messages::All));
    served.find(|accepted| accepted.form == Form::Whole).map_or(Media::Json, |accepted| accepted.media)
}

fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').take(64).map(clause).collect();
    clauses.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    clauses
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

fn served(clause: &Clause<'_>, messages: Messages) -> Option<Accepted> {
    let media = match clause.media.to_ascii_lowercase().as_str() {
        "application/json" | "*/*" | "application/*" => Media::Json,
        "application/yaml" => Media::Yaml,
        PROTOBUF => Media::Protobuf,
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
    let possible = match (media, form) {
        (Media::Json | Media::Yaml, _) => true,
        (Media::Protobuf, Form::Whole) => messages == Messages::All,
        (Media::Protobuf, Form::Metadata { .. }) => messages != Messages::None,
        // Neither tables nor the aggregated form are messages.
        (Media::Protobuf, Form::Table { .. } | Form::Discovery) => false,
    };
    // Parameters that mean nothing to us change nothing.
    possible.then_some(Accepted { media, form })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_in_order_of_preference() {
        const METADATA: &str =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let metadata = format!("{METADATA},application/json");
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
            ("application/json;odata=verbose;charset=utf-8", "Json Whole"),
            ("Application/JSON", "Json Whole"),
            ("application/json;q=0.1, application/yaml;q=0.9", "Yaml Whole"),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                "Json Whole",
            ),
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "Json Discovery"),
            ("application/vnd.kubernetes.protobuf", "refused"),
            (METADATA, "Protobuf Metadata { v1beta1: false }"),
            ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", "refused"),
            ("text/html;q=0.3", "refused"),
        ];
        let show = |header: &str, messages: Messages| {
            let found = accept(Some(header), messages).map(|one| format!("{:?} {:?}", one.media, one.form));
            found.unwrap_or_else(|_| "refused".into())
        };
        for (header, expected) in rows {
            assert_eq!(show(header, Messages::Metadata), expected, "{header}");
        }
        assert_eq!(show("application/vnd.kubernetes.protobuf", Messages::All), "Protobuf Whole");
        assert_eq!(show("application/vnd.kubernetes.protobuf;stream=watch", Messages::All), "Protobuf Whole");
        assert_eq!(show("application/vnd.kubernetes.protobuf, */*", Messages::None), "Json Whole");
        assert_eq!(show(METADATA, Messages::None), "refused");
        assert_eq!(accept_failure(Some(&metadata)), Media::Json);
        assert_eq!(accept_failure(Some("application/vnd.kubernetes.protobuf,*/*")), Media::Protobuf);
        assert_eq!(accept_failure(Some("text/html")), Media::Json);
        assert_eq!(accept_failure(None), Media::Json);
    }
}
