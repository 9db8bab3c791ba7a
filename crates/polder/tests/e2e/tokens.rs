//! Tokens of service accounts: made on request, good in one plane, and only while what they name is there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_test_support::{Client, Value, json};

use crate::process::{MAPS, PLANES, Polder};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn token(plane: &Client, spec: Value) -> String {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let made = plane.post(&format!("{ACCOUNTS}/robot/token"), &request).expect(201).json();
    made["status"]["token"].as_str().unwrap().to_string()
}

fn review(plane: &Client, token: &str) -> Value {
    let question =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    plane.post(REVIEWS, &question).expect(201).json()["status"].clone()
}

fn account(plane: &Client) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    plane.post(ACCOUNTS, &account).expect(201);
}

/// The holder of a token is its account in its plane, and nobody in any other.
#[test]
fn tokens_are_good_at_home() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    for plane in [&acme, &globex] {
        account(plane);
    }
    let token = token(&acme, json!({}));
    let status = review(&acme, &token);
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(review(&globex, &token)["authenticated"], false);
    let (head, signature) = token.rsplit_once('.').unwrap();
    let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
    assert_eq!(review(&acme, &forged)["authenticated"], false);

    let robot = acme.with_token(&token).unwrap();
    let text = robot.get(MAPS).expect(403).text();
    assert!(text.contains(r#"User \"system:serviceaccount:default:robot\" cannot list resource"#), "{text}");
    robot.in_plane("globex").get(MAPS).expect(404);
    robot.at_root().get(MAPS).expect(404);
    acme.with_token(&forged).unwrap().get(MAPS).expect(401);
}

/// A token goes with its account, with what it is bound to, and is nothing here if it was made for others.
#[test]
fn tokens_end_with_what_they_name() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    account(&acme);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    acme.post("/api/v1/namespaces/default/secrets", &secret).expect(201);
    let plain = token(&acme, json!({}));
    let bound = token(&acme, json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}));
    let foreign = token(&acme, json!({"audiences": ["https://vault.example"]}));
    let code = |token: &str| acme.with_token(token).unwrap().get(MAPS).code;
    assert_eq!([code(&plain), code(&bound), code(&foreign)], [403, 403, 401]);
    acme.delete("/api/v1/namespaces/default/secrets/s").expect(200);
    assert_eq!([code(&plain), code(&bound)], [403, 401]);
    acme.delete(&format!("{ACCOUNTS}/robot")).expect(200);
    account(&acme);
    assert_eq!(code(&plain), 401, "another account of the same name");

    let short = json!({"spec": {"expirationSeconds": 60}});
    let refused = acme.post(&format!("{ACCOUNTS}/robot/token"), &short).expect(422).text();
    assert!(refused.contains("may not specify a duration less than 10 minutes"), "{refused}");
    let missing = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "gone"}}});
    acme.post(&format!("{ACCOUNTS}/robot/token"), &missing).expect(404);
}

/// Policies of the plane have a say in tokens: they see the request, and may change and refuse it.
#[test]
fn tokens_are_admitted() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    account(&acme);
    let rules = json!({"resourceRules": [{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["serviceaccounts/token"],
    }]});
    let admission = "/apis/admissionregistration.k8s.io";
    let short = json!({"metadata": {"name": "short"}, "spec": {
        "matchConstraints": rules, "validations": [{"expression":
            "object.kind == 'TokenRequest' && request.name == 'robot' && object.spec.expirationSeconds <= 3600"}],
    }});
    acme.post(&format!("{admission}/v1/validatingadmissionpolicies"), &short).expect(201);
    let bound =
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "short", "validationActions": ["Deny"]}});
    acme.post(&format!("{admission}/v1/validatingadmissionpolicybindings"), &bound).expect(201);
    let ask = |seconds: i64| {
        let request = json!({"spec": {"expirationSeconds": seconds}});
        acme.post(&format!("{ACCOUNTS}/robot/token"), &request)
    };
    ask(3600).expect(201);
    let refused = ask(7200).expect(422).text();
    assert!(
        refused.contains("ValidatingAdmissionPolicy 'short' with binding 'b' denied request"),
        "{refused}"
    );

    let cut = json!({"metadata": {"name": "cut"}, "spec": {
        "matchConstraints": rules, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
            "expression": "Object{spec: Object.spec{expirationSeconds: 900}}"}}],
    }});
    acme.post(&format!("{admission}/v1beta1/mutatingadmissionpolicies"), &cut).expect(201);
    let bound = json!({"metadata": {"name": "b"}, "spec": {"policyName": "cut"}});
    acme.post(&format!("{admission}/v1beta1/mutatingadmissionpolicybindings"), &bound).expect(201);
    assert_eq!(ask(7200).expect(201).json()["spec"]["expirationSeconds"], 900);
    let other = json!({"metadata": {"name": "somebody"}, "spec": {}});
    let refused = acme.post(&format!("{ACCOUNTS}/robot/token"), &other).expect(422).text();
    assert!(refused.contains("must match the service account name if specified"), "{refused}");
}

/// Somebody elsewhere can verify tokens of a plane by what the plane tells those whom it lets know, and by nothing of
/// another plane's.
#[test]
fn others_verify_tokens() {
    const ISSUER: &str = "/.well-known/openid-configuration";
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    account(&acme);
    let robot = acme.with_token(&token(&acme, json!({}))).unwrap();
    let told = robot.get(ISSUER).expect(200).json();
    let issuer = told["issuer"].as_str().unwrap();
    assert!(issuer.ends_with("/clusters/acme"), "{told}");
    assert_eq!(told["jwks_uri"], format!("{issuer}/openid/v1/jwks"));
    assert_eq!(told["id_token_signing_alg_values_supported"], json!(["ES256"]));
    let keys = robot.get("/openid/v1/jwks").expect(200);
    assert_eq!(keys.header("content-type"), Some("application/jwk-set+json"));
    let keys = keys.json();
    assert_eq!((&keys["keys"][0]["kty"], &keys["keys"][0]["crv"]), (&json!("EC"), &json!("P-256")), "{keys}");
    assert_ne!(keys, globex.get("/openid/v1/jwks").expect(200).json());

    let nobody = acme.anonymous().unwrap();
    let refused = nobody.get(ISSUER).expect(403).text();
    assert_eq!(nobody.in_plane("none").get(ISSUER).expect(403).text(), refused);
    let binding = json!({
        "metadata": {"name": "issuer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:service-account-issuer-discovery"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}],
    });
    acme.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).expect(201);
    assert_eq!(nobody.get(ISSUER).expect(200).json(), told);
    assert_eq!(nobody.get("/openid/v1/jwks").expect(200).json(), keys);
    nobody.get(MAPS).expect(403);
    nobody.in_plane("globex").get(ISSUER).expect(403);
}

/// A secret for an account gets a token by itself, which goes with the secret; a fork's is its own.
#[test]
fn secrets_get_tokens() {
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let polder = Polder::start();
    let acme = polder.plane("acme");
    account(&acme);
    let secret = json!({
        "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token",
    });
    acme.post(SECRETS, &secret).expect(201);
    let token_in = |plane: &Client, not: &str| -> String {
        for _ in 0..300 {
            let found = plane.get(&format!("{SECRETS}/robot")).expect(200).json();
            if let Some(token) = found["data"]["token"].as_str().filter(|token| *token != not) {
                return token.to_string();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the secret has no token");
    };
    let plain = |token: &str| String::from_utf8(STANDARD.decode(token).unwrap()).unwrap();
    let token = token_in(&acme, "");
    let robot = acme.with_token(&plain(&token)).unwrap();
    let text = robot.get(MAPS).expect(403).text();
    assert!(text.contains(r#"User \"system:serviceaccount:default:robot\""#), "{text}");

    let fork = json!({"metadata": {"name": "copy"}, "spec": {"forkFrom": "acme"}});
    polder.admin.post(PLANES, &fork).expect(201);
    let copy = polder.admin.in_plane("copy");
    copy.with_token(&plain(&token)).unwrap().get(MAPS).expect(404);
    copy.post(MAPS, &json!({"metadata": {"name": "first"}})).expect(201);
    let own = token_in(&copy, &token);
    copy.with_token(&plain(&own)).unwrap().get(MAPS).expect(403);
    acme.with_token(&plain(&own)).unwrap().get(MAPS).expect(404);

    acme.delete(&format!("{SECRETS}/robot")).expect(200);
    robot.get(MAPS).expect(401);
}
