//! Tokens of service accounts: made on request, good in one plane, and only while what they name is there.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
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

/// No token is good for longer than the provider lets it be, a year unless it says otherwise; whoever asks for more is told.
#[test]
fn tokens_end_in_time() {
    let year = 365 * 24 * 3600;
    for (configuration, seconds_max) in
        [("", year), ("authentication: {serviceAccountMaxTokenExpirationSeconds: 7200}", 7200)]
    {
        let polder = Polder::start_with(configuration);
        let acme = polder.plane("acme");
        account(&acme);
        let ask = |seconds: i64| {
            let request = json!({"spec": {"expirationSeconds": seconds}});
            let reply = acme.post(&format!("{ACCOUNTS}/robot/token"), &request).expect(201);
            let warning = reply.header("warning").unwrap_or_default().to_string();
            let made = reply.json();
            let token = made["status"]["token"].as_str().unwrap().to_string();
            let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
            let claims: Value = String::from_utf8(payload).unwrap().parse().unwrap();
            let lives = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
            (made["spec"]["expirationSeconds"].as_i64().unwrap(), lives, warning)
        };
        assert_eq!(ask(3600), (3600, 3600, String::new()));
        assert_eq!(ask(seconds_max), (seconds_max, seconds_max, String::new()));
        let (told, lives, warning) = ask(1 << 32);
        assert_eq!((told, lives), (seconds_max, seconds_max));
        let text = format!("requested expiration of 4294967296 seconds shortened to {seconds_max} seconds");
        assert_eq!(warning, format!("299 - \"{text}\""));
    }
}

/// A token may be bound to a node, or to a pod, and then tells the pod's node too; reviews say so as upstream's do. One that
/// kubelets ask for is good for a year, and says when it should have been renewed.
#[test]
fn tokens_are_bound_to_nodes_and_pods() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    account(&acme);
    let node = json!({"metadata": {"name": "machine"}});
    let node = acme.post("/api/v1/nodes", &node).expect(201).json();
    let pod = json!({"metadata": {"name": "web"}, "spec": {
        "serviceAccountName": "robot", "nodeName": "machine", "containers": [{"name": "c", "image": "i"}]}});
    let pod = acme.post("/api/v1/namespaces/default/pods", &pod).expect(201).json();
    let bound = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name});
    let extra = |token: &str| {
        let user = review(&acme, token)["user"].clone();
        let extra = user["extra"].as_object().unwrap().clone();
        extra
            .into_iter()
            .map(|(key, values)| (key, values[0].as_str().unwrap().to_string()))
            .collect::<Vec<_>>()
    };
    let claims = |token: &str| -> Value {
        let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        String::from_utf8(payload).unwrap().parse().unwrap()
    };
    let key = |name: &str| format!("authentication.kubernetes.io/{name}");
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_string();
    let of_node = [(key("node-name"), "machine".to_string()), (key("node-uid"), uid(&node))];

    let to_node = token(&acme, json!({"boundObjectRef": bound("Node", "machine")}));
    assert_eq!(extra(&to_node)[1..], of_node, "after the credential's own");
    assert!(extra(&to_node)[0].1.starts_with("JTI="));
    let to_pod = token(&acme, json!({"boundObjectRef": bound("Pod", "web"), "expirationSeconds": 3607}));
    let of_pod = [(key("pod-name"), "web".to_string()), (key("pod-uid"), uid(&pod))];
    assert_eq!(extra(&to_pod)[1..], [&of_node[..], &of_pod[..]].concat(), "sorted");
    let said = claims(&to_pod);
    let number = |value: &Value| value.as_i64().unwrap();
    assert_eq!(number(&said["exp"]) - number(&said["iat"]), 365 * 24 * 3600, "{said}");
    assert_eq!(number(&said["kubernetes.io"]["warnafter"]) - number(&said["iat"]), 3607);
    assert_eq!(said["kubernetes.io"]["node"]["name"], "machine");
    let plain = claims(&token(&acme, json!({"expirationSeconds": 3607})));
    assert_eq!(number(&plain["exp"]) - number(&plain["iat"]), 3607, "bound to no pod");

    let code = |token: &str| acme.with_token(token).unwrap().get(MAPS).code;
    assert_eq!([code(&to_node), code(&to_pod)], [403, 403]);
    acme.delete("/api/v1/nodes/machine").expect(200);
    assert_eq!([code(&to_node), code(&to_pod)], [401, 403], "a pod's token is not bound to its node");
    acme.post("/api/v1/nodes", &json!({"metadata": {"name": "machine"}})).expect(201);
    assert_eq!(code(&to_node), 401, "another node of the same name");
    let wrong = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "machine", "uid": "x"}}});
    acme.post(&format!("{ACCOUNTS}/robot/token"), &wrong).expect(409);
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
