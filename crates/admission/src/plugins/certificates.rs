//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction: who may say yes to a signing request, who
//! may answer it, and that nobody becomes a master by one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::{GroupResource, Status, Value, format_smolstr};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::{Question, World};

pub(super) struct CertificateApproval;
pub(super) struct CertificateSigning;
pub(super) struct CertificateSubjectRestriction;

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

fn interest(kind: Kind<'_>, operations: Operations) -> Interest {
    Interest::validate(operations).when(kind.is(GROUP, "certificatesigningrequests"))
}

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        interest(kind, Operations::UPDATE)
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        _object: Option<&'a Value>,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let Some(old) = request.old.filter(|_| request.subresource == "approval") else { return Ok(()) };
            check(request, "approve", old, world).await
        })
    }
}

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        interest(kind, Operations::UPDATE)
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let (Some(new), Some(old), "status") = (object, request.old, request.subresource) else {
                return Ok(());
            };
            let same = |field: &str| new.at(&["status", field]) == old.at(&["status", field]);
            if same("certificate") && same("conditions") {
                return Ok(());
            }
            check(request, "sign", old, world).await
        })
    }
}

/// Whether the user may do something in the name of the signer a request is for, or of all signers of its domain.
async fn check(request: &Attributes<'_>, verb: &str, old: &Value, world: &dyn World) -> Result<(), Status> {
    let signer = old.str_at(&["spec", "signerName"]).unwrap_or_default();
    let resource = GroupResource::new(GROUP, "signers");
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [format_smolstr!("{signer}"), format_smolstr!("{domain}/*")] {
        let question = Question { verb, resource: &resource, subresource: "", namespace: "", name: &name };
        if world.allows(question).await? {
            return Ok(());
        }
    }
    Err(request.forbidden(format!("user not permitted to {verb} requests with signerName {signer:?}")))
}

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        interest(kind, Operations::CREATE)
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let Some(object) = object.filter(|_| request.is_whole()) else { return Ok(()) };
            if object.str_at(&["spec", "signerName"]) != Some(CLIENT_SIGNER) {
                return Ok(());
            }
            let armored = object.str_at(&["spec", "request"]).unwrap_or_default();
            let Some(organizations) = request_der(armored).and_then(|der| organizations(&der)) else {
                return Err(request.forbidden("failed to parse CSR: asn1: structure error"));
            };
            if organizations.iter().any(|organization| organization == MASTERS.as_bytes()) {
                let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
                return Err(request.forbidden(why));
            }
            Ok(())
        })
    }
}

/// What is inside the PEM armor inside the base64.
fn request_der(armored: &str) -> Option<Vec<u8>> {
    let text = String::from_utf8(STANDARD.decode(armored).ok()?).ok()?;
    let body = text.split_once("-----BEGIN CERTIFICATE REQUEST-----")?.1;
    let body: String = body.split_once("-----END")?.0.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

/// The organizations in the subject of a PKCS #10 request.
fn organizations(der: &[u8]) -> Option<Vec<Vec<u8>>> {
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
    let mut rest = der;
    let mut request = element(&mut rest, Some(SEQUENCE))?;
    let mut about = element(&mut request, Some(SEQUENCE))?;
    let _version = element(&mut about, Some(0x02))?;
    let mut subject = element(&mut about, Some(SEQUENCE))?;
    let mut found = Vec::new();
    while !subject.is_empty() {
        let mut set = element(&mut subject, Some(SET))?;
        while !set.is_empty() {
            let mut pair = element(&mut set, Some(SEQUENCE))?;
            let kind = element(&mut pair, Some(0x06))?;
            let value = element(&mut pair, None)?;
            if kind == ORGANIZATION {
                found.push(value.to_vec());
            }
        }
    }
    Some(found)
}

/// The contents of the next DER element; what follows it stays.
fn element<'a>(rest: &mut &'a [u8], tag: Option<u8>) -> Option<&'a [u8]> {
    let (&own, after) = rest.split_first()?;
    let (&first, mut after) = after.split_first()?;
    if tag.is_some_and(|tag| tag != own) {
        return None;
    }
    let len = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x83 => {
            let (digits, tail) = after.split_at_checked(usize::from(first & 0x7f))?;
            after = tail;
            digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit))
        }
        _ => return None,
    };
    let (contents, tail) = after.split_at_checked(len)?;
    *rest = tail;
    Some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    const PATH: &str = "certificatesigningrequests.certificates.k8s.io";
    const OLD: &str = r#"{"metadata":{"name":"r"},"spec":{"signerName":"example.com/x"}}"#;

    #[test]
    fn approvers_and_signers() {
        #[track_caller]
        fn check(plugin: &dyn Plugin, part: &str, new: &str, allowed: bool, expected: Option<&str>) {
            let world = Fake { allowed, ..Fake::default() };
            let path = format!("{PATH}/{part}");
            let request = Request { plugin, world: &world, path: &path, operation: Operation::Update };
            let text = expected.map(|text| format!("{PATH} \"r\" is forbidden: {text}"));
            assert_eq!(request.validate(new, Some(OLD)).err(), text);
        }
        let signed = r#"{"metadata":{"name":"r"},"status":{"certificate":"x"}}"#;
        let no_approval = r#"user not permitted to approve requests with signerName "example.com/x""#;
        let no_signing = r#"user not permitted to sign requests with signerName "example.com/x""#;
        check(&CertificateApproval, "approval", OLD, true, None);
        check(&CertificateApproval, "approval", OLD, false, Some(no_approval));
        check(&CertificateApproval, "status", OLD, false, None);
        check(&CertificateSigning, "status", signed, true, None);
        check(&CertificateSigning, "status", signed, false, Some(no_signing));
        check(&CertificateSigning, "status", OLD, false, None);
    }

    /// A request with a subject and nothing else of interest.
    fn request_of(organization: &str) -> String {
        let wrap = |tag: u8, contents: &[u8]| {
            let mut all = vec![tag, u8::try_from(contents.len()).unwrap()];
            all.extend(contents);
            all
        };
        let pair = [wrap(6, &[0x55, 4, 0x0a]), wrap(0x0c, organization.as_bytes())].concat();
        let subject = wrap(0x30, &wrap(0x31, &wrap(0x30, &pair)));
        let about = wrap(0x30, &[wrap(2, &[0]), subject].concat());
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(wrap(0x30, &about))
        );
        STANDARD.encode(pem)
    }

    #[test]
    fn no_masters() {
        #[track_caller]
        fn check(signer: &str, request: &str, expected: Option<&str>) {
            let object = format!(
                r#"{{"metadata":{{"name":"r"}},"spec":{{"signerName":"{signer}","request":"{request}"}}}}"#
            );
            let world = Fake::default();
            let plugin = &CertificateSubjectRestriction;
            let request = Request { plugin, world: &world, path: PATH, operation: Operation::Create };
            let text = expected.map(|text| format!("{PATH} \"r\" is forbidden: {text}"));
            assert_eq!(request.validate(&object, None).err(), text);
        }
        check(CLIENT_SIGNER, &request_of("developers"), None);
        check("example.com/x", &request_of(MASTERS), None);
        check(
            CLIENT_SIGNER,
            &request_of(MASTERS),
            Some(
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
            ),
        );
        check(CLIENT_SIGNER, "AAAA", Some("failed to parse CSR: asn1: structure error"));
    }
}
