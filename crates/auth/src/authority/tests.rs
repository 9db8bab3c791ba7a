use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

use super::*;

fn authorities() -> PlaneAuthorities {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "polder");
    PlaneAuthorities::new(b"secret", params.self_signed(&key).unwrap().der()).unwrap()
}

fn request(name: &str, group: &str, names: Vec<SanType>) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.subject_alt_names = names;
    params.serialize_request(&key).unwrap().pem().unwrap()
}

fn uri(text: &str) -> Vec<SanType> {
    vec![SanType::URI(text.try_into().unwrap())]
}

fn terms() -> Terms {
    let usages = ["digital signature", "client auth"].map(SmolStr::new).to_vec();
    Terms { usages, not_before: 0, not_after: 3600 }
}

#[test]
fn certificates_are_of_one_plane() {
    let authorities = authorities();
    let names = vec![
        SanType::DnsName("a.example".try_into().unwrap()),
        SanType::IpAddress([10, 0, 0, 1].into()),
        SanType::URI("spiffe://a/b".try_into().unwrap()),
    ];
    let request = Request::parse(request("ann", "developers", names).as_bytes()).unwrap();
    assert_eq!((request.common_name.as_str(), request.organizations[0].as_str()), ("ann", "developers"));
    assert_eq!(request.dns_names, ["a.example"]);
    assert_eq!(request.addresses, [[10, 0, 0, 1]]);
    let made = authorities.issue(PlaneId(7), &request, &terms()).unwrap();
    let found = ClientCertificate::read(&made).unwrap();
    let user = found.user(0).unwrap();
    assert_eq!((user.name.as_str(), user.home), ("ann", Some(PlaneId(7))));
    assert!(user.in_group("developers"));
    assert_eq!(PlaneAuthorities::plane_of(&made), Some(PlaneId(7)));

    let (_, read) = X509Certificate::from_der(&made).unwrap();
    let (not_before, not_after) = (read.validity().not_before, read.validity().not_after);
    assert_eq!((not_before.timestamp(), not_after.timestamp()), (0, 3600));
    assert!(read.key_usage().unwrap().unwrap().value.digital_signature());
    assert!(read.extended_key_usage().unwrap().unwrap().value.client_auth);
    assert!(!read.is_ca());
    assert_eq!(read.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 4);
    assert_eq!(read.issuer().to_string(), "CN=polder");
}

#[test]
fn keys_are_of_one_plane_and_one_server() {
    let (one, same) = (authorities(), authorities());
    assert_eq!(one.anchor(PlaneId(7)), same.anchor(PlaneId(7)), "of the secret and the number alone");
    assert_ne!(one.anchor(PlaneId(7)), one.anchor(PlaneId(8)));
    let ca = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
    let other = PlaneAuthorities::new(b"other", ca.der()).unwrap();
    assert_ne!(one.anchor(PlaneId(7)).unwrap().public_key, other.anchor(PlaneId(7)).unwrap().public_key);
}

#[test]
fn nobody_asks_for_another_plane_or_for_masters() {
    let authorities = authorities();
    let issue = |pem: String| {
        let request = Request::parse(pem.as_bytes()).unwrap();
        authorities.issue(PlaneId(7), &request, &terms()).map(drop).map_err(|error| error.to_string())
    };
    let reserved = Err("URI subjectAltNames that begin with polder: are not allowed".to_string());
    assert_eq!(issue(request("ann", "", uri("polder:plane:8"))), reserved);
    assert_eq!(issue(request("ann", "", uri("Polder:plane:8"))), reserved);
    assert_eq!(issue(request("ann", "", uri("polder.example:x"))), Ok(()));
    let masters = Err("use of the system:masters group is not allowed".to_string());
    assert_eq!(issue(request("ann", MASTERS, vec![])), masters);
    let unknown = Terms { usages: vec!["flying".into()], ..terms() };
    let asked = Request::parse(request("ann", "", vec![]).as_bytes()).unwrap();
    assert!(matches!(authorities.issue(PlaneId(7), &asked, &unknown), Err(IssueError::Usage)));
}

#[test]
fn what_is_no_request_is_refused() {
    #[track_caller]
    fn check(pem: &str, expected: &str) {
        assert_eq!(Request::parse(pem.as_bytes()).unwrap_err().to_string(), expected);
    }
    let good = request("ann", "", vec![]);
    check("", "PEM block type must be CERTIFICATE REQUEST");
    check(&good.replace("CERTIFICATE REQUEST", "CERTIFICATE"), "PEM block type must be CERTIFICATE REQUEST");
    let cut = "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n";
    check(cut, "asn1: structure error");
    check(&" ".repeat(200_000), "the request is longer than 65536 bytes");
    // Signed for another name.
    let body: String = good.lines().filter(|line| !line.starts_with("-----")).collect();
    let engine = base64::engine::general_purpose::STANDARD;
    let mut der = base64::Engine::decode(&engine, body).unwrap();
    let at = der.windows(3).position(|window| window == b"ann").unwrap();
    der[at] = b'x';
    let body = base64::Engine::encode(&engine, der);
    let forged = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
    check(&forged, "unable to verify certificate request signature");
    let bytes = DnValue::BmpString("ann".try_into().unwrap());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, bytes);
    let wide = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    check(&wide, "the subject has a name that is not text");
}
