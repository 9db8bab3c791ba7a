//! Who people are: issuers of the server and of planes, bootstrap tokens, a token webhook, proxies, nobody in particular; files
//! that change while the server runs; and that no credential of one plane is any good in another.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_test_support::issuer::{TokenIssuer, token_webhook};
use polder_test_support::{Client, Value, eventually, json};

use crate::process::{MAPS, PLANES, Polder, refused, serve};
use crate::real_clients::{kubeconfig, kubectl};
use crate::tools;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const LOOPBACK: &str = "webhookNetworks: [127.0.0.0/8]\n";

/// The configuration that names a file for everything beside the data.
fn with_files(directory: &tempfile::TempDir, names: &[(&str, &str)]) -> String {
    names
        .iter()
        .map(|(field, name)| format!("{field}: {}\n", directory.path().join(name).display()))
        .collect()
}

fn authentication_file(issuers: &[Value]) -> String {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": issuers})
        .to_string()
}

/// A server with a file of issuers.
fn with_issuers(issuers: &[Value], rest: &str) -> Polder {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authn.yaml");
    fs::write(&file, authentication_file(issuers)).unwrap();
    let configuration = format!("authentication:\n  config: {}\n{rest}", file.display());
    Polder::start_in(directory, &configuration)
}

fn who(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    client.post(REVIEWS, &review).expect(201).json()["status"]["userInfo"].clone()
}

/// Lets users or groups do everything in a plane.
fn bind(plane: &Client, name: &str, kind: &str, subject: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
    });
    plane.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).expect(201);
}

/// People of the server's issuer are the provider's: somebody in the core plane, and a guest where a plane binds them.
#[test]
fn issuers_of_the_server() {
    let issuer = TokenIssuer::start().unwrap();
    let polder = with_issuers(&[issuer.entry("oidc:")], "");
    let (acme, _globex) = (polder.plane("acme"), polder.plane("globex"));
    let token = issuer.token(&json!({"sub": "ann", "groups": ["dev"], "jti": "t1"})).unwrap();
    let ann = polder.admin.with_token(&token).unwrap();
    let user = who(&ann);
    assert_eq!(user["username"], "oidc:ann");
    assert_eq!(user["groups"], json!(["oidc:dev", "system:authenticated"]));
    assert_eq!(user["extra"]["authentication.kubernetes.io/credential-id"], json!(["JTI=t1"]));
    ann.get(MAPS).expect(403);
    ann.in_plane("acme").get(MAPS).expect(404);
    bind(&acme, "guests", "Group", "provider:oidc:dev");
    ann.in_plane("acme").get(MAPS).expect(200);
    ann.in_plane("globex").get(MAPS).expect(404);
    assert_eq!(issuer.asked(), 1, "keys are kept");

    // Tokens that are not what they say.
    let other = TokenIssuer::start().unwrap();
    let now = 2_000_000_000;
    for (what, token) in [
        ("another audience", issuer.token(&json!({"sub": "ann", "aud": "other"}))),
        ("no audience", issuer.token(&json!({"sub": "ann", "aud": null}))),
        ("over", issuer.token(&json!({"sub": "ann", "exp": 1000}))),
        ("not yet", issuer.token(&json!({"sub": "ann", "nbf": now, "exp": now + 1}))),
        ("another issuer", other.token(&json!({"sub": "ann"}))),
        ("another issuer in this one's name", other.token(&json!({"sub": "ann", "iss": issuer.url}))),
        ("this issuer in another's name", issuer.token(&json!({"sub": "ann", "iss": other.url}))),
        ("nobody", issuer.token(&json!({"sub": ""}))),
    ] {
        let code = polder.admin.with_token(&token.unwrap()).unwrap().get("/api").code;
        assert_eq!(code, 401, "{what}");
    }
    let parts: Vec<&str> = token.split('.').collect();
    let none = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    for forged in [format!("{none}.{}.", parts[1]), format!("{none}.{}.{}", parts[1], parts[2])] {
        assert_eq!(polder.admin.with_token(&forged).unwrap().get("/api").code, 401);
    }
    assert_eq!(other.asked(), 0, "nobody is asked whom the configuration does not name");
}

/// Whoever shows a credential is not taken for somebody who shows none, whatever they are called.
#[test]
fn nobody_is_called_anonymous() {
    let issuer = TokenIssuer::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let authn = directory.path().join("authn.yaml");
    let mut file: Value = authentication_file(&[issuer.entry("")]).parse().unwrap();
    file["anonymous"] = json!({"enabled": true, "conditions": [{"path": "/livez"}]});
    fs::write(&authn, file.to_string()).unwrap();
    let polder = Polder::start_in(directory, &format!("authentication:\n  config: {}\n", authn.display()));
    let acme = polder.plane("acme");
    bind(&acme, "dev", "Group", "dev");
    let token = issuer.token(&json!({"sub": "system:anonymous", "groups": ["dev"]})).unwrap();
    let anonymous = polder.admin.with_token(&token).unwrap();
    anonymous.in_plane("acme").get(MAPS).expect(401);
    anonymous.get("/livez").expect(401);
    let named = issuer.token(&json!({"sub": "ann", "groups": ["dev"]})).unwrap();
    polder.admin.with_token(&named).unwrap().in_plane("acme").get(MAPS).expect(404);
}

/// An issuer of the server may say of each of its people which plane they are of: then they are of that plane alone.
#[test]
fn an_issuer_confines_its_people() {
    let issuer = TokenIssuer::start().unwrap();
    let mut entry = issuer.entry("");
    entry["claimMappings"]["extra"] =
        json!([{"key": "polder.dev/plane", "valueExpression": "has(claims.tenant) ? claims.tenant : ''"}]);
    let polder = with_issuers(&[entry], "");
    let (_acme, _globex) = (polder.plane("acme"), polder.plane("globex"));
    let of = |claims: Value| polder.admin.with_token(&issuer.token(&claims).unwrap()).unwrap();
    let ann = of(json!({"sub": "ann", "groups": ["system:masters"], "tenant": "acme"}));
    ann.in_plane("acme").get(MAPS).expect(200);
    assert_eq!(who(&ann.in_plane("acme"))["extra"]["polder.dev/plane"], Value::Null);
    ann.in_plane("globex").get(MAPS).expect(404);
    ann.get(PLANES).expect(404);
    for claims in [
        json!({"sub": "ann", "groups": ["system:masters"]}),
        json!({"sub": "ann", "groups": ["system:masters"], "tenant": "nowhere"}),
        json!({"sub": "ann", "groups": ["system:masters"], "tenant": ""}),
        json!({"sub": "ann", "groups": ["system:masters"], "tenant": ["acme", "globex"]}),
        json!({"sub": "ann", "groups": ["system:masters"], "tenant": "core"}),
    ] {
        of(claims.clone()).get(PLANES).expect(401);
        of(claims).in_plane("acme").get(MAPS).expect(401);
    }
}

/// A plane has issuers of its own, from the next request on; whoever they know exists in that plane only.
#[test]
fn issuers_of_a_plane() {
    let (own, other) = (TokenIssuer::start().unwrap(), TokenIssuer::start().unwrap());
    let polder = with_issuers(&[own.entry("server:")], LOOPBACK);
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    let path = format!("{PLANES}/acme");
    let patch = |authentication: Value| {
        let body = json!({"spec": {"authentication": authentication}});
        polder.admin.patch(&path, "merge", &body)
    };
    let token = other.token(&json!({"sub": "ann", "groups": ["dev"]})).unwrap();
    let ann = acme.with_token(&token).unwrap();
    ann.get(MAPS).expect(401);
    patch(json!({"jwt": [other.entry("")]})).expect(200);
    assert_eq!(who(&ann)["username"], "ann");
    ann.get(MAPS).expect(403);
    bind(&acme, "dev", "Group", "dev");
    ann.get(MAPS).expect(200);
    ann.in_plane("globex").get(MAPS).expect(401);
    ann.at_root().get("/api").expect(401);

    // The same issuer in two planes makes two people; each plane says by itself what they are called.
    let body = json!({"spec": {"authentication": {"jwt": [other.entry("g:")]}}});
    polder.admin.patch(&format!("{PLANES}/globex"), "merge", &body).expect(200);
    assert_eq!(who(&globex.with_token(&token).unwrap())["username"], "g:ann");
    assert_eq!(who(&ann)["username"], "ann");

    // One URL with the server and with a plane: in that plane the plane's counts first, elsewhere the server's.
    patch(json!({"jwt": [own.entry("plane:")]})).expect(200);
    ann.get(MAPS).expect(401);
    let bob = acme.with_token(&own.token(&json!({"sub": "bob"})).unwrap()).unwrap();
    assert_eq!(who(&bob)["username"], "plane:bob");
    assert_eq!(who(&bob.at_root())["username"], "server:bob");

    let refused = patch(
        json!({"jwt": [{"issuer": {"url": "http://x", "audiences": ["a"]}, "claimMappings": {"username": {"expression": "1 +"}}}]}),
    );
    let text = refused.expect(422).text();
    assert!(
        text.contains(
            "spec.authentication.jwt[0].issuer.url: Invalid value: \\\"http://x\\\": URL scheme must be https"
        ),
        "{text}"
    );
    assert!(text.contains("spec.authentication.jwt[0].claimMappings.username.expression"), "{text}");
    acme.get(PLANES).expect(404);
}

/// A plane's issuer is looked for at public addresses only, unless the provider lists others.
#[test]
fn issuers_of_a_plane_lead_nowhere_inside() {
    let issuer = TokenIssuer::start().unwrap();
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let body = json!({"spec": {"authentication": {"jwt": [issuer.entry("")]}}});
    polder.admin.patch(&format!("{PLANES}/acme"), "merge", &body).expect(200);
    acme.with_token(&issuer.token(&json!({"sub": "ann"})).unwrap()).unwrap().get(MAPS).expect(401);
    assert_eq!(issuer.asked(), 0);
}

/// Bootstrap tokens are good in the plane whose secret says so.
#[test]
fn bootstrap_tokens() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let encode = |text: &str| STANDARD.encode(text);
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
            "usage-bootstrap-authentication": encode("true"), "auth-extra-groups": encode("system:bootstrappers:nodes"),
        },
    });
    let token = "abcdef.0123456789abcdef";
    acme.with_token(token).unwrap().get(MAPS).expect(401);
    acme.post(secrets, &secret).expect(201);
    let user = who(&acme.with_token(token).unwrap());
    assert_eq!(user["username"], "system:bootstrap:abcdef");
    assert_eq!(
        user["groups"],
        json!(["system:bootstrappers", "system:bootstrappers:nodes", "system:authenticated"])
    );
    globex.with_token(token).unwrap().get(MAPS).expect(401);
    polder.admin.with_token(token).unwrap().get(MAPS).expect(401);
    acme.with_token("abcdef.0123456789abcdeg").unwrap().get(MAPS).expect(401);
    let over = json!({"stringData": {"expiration": "2001-01-01T00:00:00Z"}});
    acme.patch(&format!("{secrets}/bootstrap-token-abcdef"), "merge", &over).expect(200);
    acme.with_token(token).unwrap().get(MAPS).expect(401);
    eventually("the secret goes", || acme.get(&format!("{secrets}/bootstrap-token-abcdef")).code == 404);
}

/// A webhook of the provider's is asked about tokens nobody else knows.
#[test]
fn token_webhooks() {
    let webhook = token_webhook(|token| match token {
        "staff" => json!({"authenticated": true, "user": {"username": "staff", "groups": ["ops"]}}),
        "tenant" => json!({"authenticated": true, "user": {
            "username": "tess", "groups": ["system:masters"], "extra": {"polder.dev/plane": ["acme"]}}}),
        "lost" => {
            json!({"authenticated": true, "user": {"username": "l", "extra": {"polder.dev/plane": ["nowhere"]}}})
        }
        _ => json!({"authenticated": false}),
    });
    let webhook = webhook.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("webhook.kubeconfig");
    fs::write(&file, webhook.kubeconfig("/authenticate")).unwrap();
    let configuration = format!("authentication:\n  tokenWebhook:\n    kubeconfig: {}\n", file.display());
    let polder = Polder::start_in(directory, &configuration);
    let (_acme, _globex) = (polder.plane("acme"), polder.plane("globex"));
    let with = |token: &str| polder.admin.with_token(token).unwrap();
    assert_eq!(who(&with("staff"))["groups"], json!(["ops", "system:authenticated"]));
    with("staff").in_plane("acme").get(MAPS).expect(404);
    with("tenant").in_plane("acme").get(MAPS).expect(200);
    with("tenant").in_plane("globex").get(MAPS).expect(404);
    with("tenant").get(PLANES).expect(404);
    for token in ["lost", "other"] {
        with(token).get("/api").expect(401);
    }
}

/// What a kubeconfig names by path is read again when it changes, and so is the authority of proxies: for new connections, and for
/// those that are open.
#[test]
fn named_files_are_read_again() {
    let webhook =
        token_webhook(|token| json!({"authenticated": (token == "staff"), "user": {"username": "staff"}}));
    let webhook = webhook.unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "w",
        "clusters": [{"name": "w", "cluster": {
            "server": format!("https://{}/authenticate", webhook.address), "certificate-authority": "webhook-ca.crt"}}],
        "users": [{"name": "w", "user": {}}],
        "contexts": [{"name": "w", "context": {"cluster": "w", "user": "w"}}],
    });
    fs::write(file("webhook.kubeconfig"), kubeconfig.to_string()).unwrap();
    fs::write(file("webhook-ca.crt"), &other.pem).unwrap();
    fs::write(file("proxy-ca.crt"), &authority.pem).unwrap();
    let (named, proxies) = (file("webhook-ca.crt"), file("proxy-ca.crt"));
    let configuration = format!(
        "authentication:\n  tokenWebhook:\n    kubeconfig: {}\n  requestHeader:\n    clientCAFile: {}\n    usernameHeaders: [X-Remote-User]\n",
        file("webhook.kubeconfig").display(),
        proxies.display(),
    );
    let polder = Polder::start_in(directory, &configuration);
    let code = || polder.admin.with_token("staff").unwrap().get("/api").code;
    assert_eq!(code(), 401, "the webhook is not believed");
    let bundle = STANDARD.decode(&webhook.ca_bundle).unwrap();
    fs::write(&named, bundle).unwrap();
    eventually("the webhook is believed", || code() == 200);

    let front = |authority: &Authority| {
        let (certificate, key) = authority.signed("front");
        polder.admin.with_certificate(&certificate, &key).unwrap().with_header("X-Remote-User", "ann")
    };
    let (old, new) = (front(&authority), front(&other));
    let mut open = old.connect().unwrap();
    let mut ask = || open.send(&old.head("GET", "/api", &[], b""), b"").unwrap().code;
    assert_eq!(ask(), 200);
    assert!(new.send("GET", "/api", &[], b"").is_err());
    fs::write(&proxies, "not a certificate").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(ask(), 200, "what is wrong is not taken over");
    fs::write(&proxies, &other.pem).unwrap();
    eventually("the other proxy is believed", || {
        new.send("GET", "/api", &[], b"").is_ok_and(|reply| reply.code == 200)
    });
    assert_eq!(ask(), 401, "on the open connection too");
}

/// Files are read again when they change; one that is wrong is not taken over.
#[test]
fn files_are_read_again() {
    let issuer = TokenIssuer::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (tokens, authn) = (directory.path().join("tokens.csv"), directory.path().join("authn.yaml"));
    fs::write(&tokens, "first,ann,1\n").unwrap();
    fs::write(&authn, authentication_file(&[])).unwrap();
    let mut configuration = with_files(&directory, &[("tokenFile", "tokens.csv")]);
    configuration.push_str(&format!("authentication:\n  config: {}\n", authn.display()));
    let polder = Polder::start_in(directory, &configuration);
    let code = |token: &str| polder.admin.with_token(token).unwrap().get("/api").code;
    let reloads = |status: &str| {
        let name = format!(
            "apiserver_authentication_config_controller_automatic_reloads_total{{status=\"{status}\"}} "
        );
        let text = polder.admin.get("/metrics").expect(200).text();
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap()
    };
    let oidc = issuer.token(&json!({"sub": "ann"})).unwrap();
    assert_eq!([code("first"), code("second"), code(&oidc)], [200, 401, 401]);
    fs::write(&tokens, "second,ann,1\n").unwrap();
    eventually("the new token is good", || code("second") == 200);
    assert_eq!(code("first"), 401, "the old one is not");
    fs::write(&authn, authentication_file(&[issuer.entry("")])).unwrap();
    eventually("the new issuer is believed", || code(&oidc) == 200);
    assert_eq!(reloads("failure"), 0);
    fs::write(&authn, authentication_file(&[json!({"issuer": {"url": "http://x"}})])).unwrap();
    eventually("the bad file is noticed", || reloads("failure") == 1);
    assert_eq!([code(&oidc), code("second")], [200, 200]);
    fs::write(&tokens, "second,ann,1\nsecond,bob,2\n").unwrap();
    eventually("the bad tokens are noticed", || reloads("failure") == 2);
    assert_eq!(code("second"), 200);
    fs::write(&tokens, "third,ann,1\n").unwrap();
    fs::write(&authn, authentication_file(&[])).unwrap();
    eventually("all is well again", || code("third") == 200 && code(&oidc) == 401);
    let log = fs::read_to_string(polder.directory().join("log")).unwrap();
    assert!(log.contains("URL scheme must be https") && log.contains("line 2 of the token file"), "{log}");
}

/// A server does not start with a file that is wrong, and says where.
#[test]
fn wrong_files_are_named() {
    let check = |name: &str, text: &str, field: &str, expected: &str| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        let configuration = format!("{}{field}: {}\n", crate::process::CONFIG_HEAD, file.display());
        fs::write(directory.path().join("config.yaml"), configuration).unwrap();
        let mut command = serve(&directory.path().join("data"), "127.0.0.1:0");
        command.arg("--config").arg(directory.path().join("config.yaml"));
        let said = refused(command);
        assert!(said.contains(name) && said.contains(expected), "{said}");
    };
    check("t.csv", "a,b,c,,1,x\n", "tokenFile", "must have at most 5 columns");
    check("t.csv", "a,b,c\na,d,e\n", "tokenFile", "the token stands in an earlier line too");
    let wrong =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{isuer: {}}]\n";
    check(
        "a.yaml",
        wrong,
        "authentication:\n  config",
        "strict decoding error: unknown field \"jwt[0].isuer\"",
    );
}

/// Nobody in particular may ask what the configuration says, and see what roles allow.
#[test]
fn nobody_in_particular() {
    let start = |anonymous: Value| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("authn.yaml");
        let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "anonymous": anonymous});
        fs::write(&file, text.to_string()).unwrap();
        let configuration = format!("authentication:\n  config: {}\n", file.display());
        Polder::start_in(directory, &configuration)
    };
    let codes = |polder: &Polder| {
        let nobody = polder.admin.anonymous().unwrap();
        [nobody.get("/livez"), nobody.get("/readyz"), nobody.get(MAPS)].map(|reply| reply.code)
    };
    assert_eq!(codes(&Polder::start()), [200, 200, 403]);
    assert_eq!(codes(&start(json!({"enabled": false}))), [401, 401, 401]);
    assert_eq!(codes(&start(json!({"enabled": true, "conditions": [{"path": "/livez"}]}))), [200, 401, 401]);
    let open = start(json!({"enabled": true}));
    assert_eq!(codes(&open), [200, 200, 403]);
    let (acme, _globex) = (open.plane("acme"), open.plane("globex"));
    bind(&acme, "everybody", "User", "system:anonymous");
    let nobody = open.admin.anonymous().unwrap();
    nobody.in_plane("acme").get(MAPS).expect(200);
    let refused = nobody.in_plane("globex").get(MAPS).expect(403).text();
    assert_eq!(nobody.in_plane("none").get(MAPS).expect(403).text(), refused);
}

/// A proxy with a certificate of the authority for proxies says who somebody is; nobody else does, and its certificate is good for
/// nothing else.
#[test]
fn proxies_authenticate() {
    let (authority, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy-ca.crt");
    fs::write(&file, &authority.pem).unwrap();
    let configuration = format!(
        "authentication:\n  requestHeader:\n    clientCAFile: {}\n    allowedNames: [front]\n    usernameHeaders: [X-Remote-User]\n    \
         groupHeaders: [X-Remote-Group]\n    extraHeaderPrefixes: [X-Remote-Extra-]\n",
        file.display()
    );
    let polder = Polder::start_in(directory, &configuration);
    let (_acme, _globex) = (polder.plane("acme"), polder.plane("globex"));
    let as_proxy = |authority: &Authority, name: &str| {
        let (certificate, key) = authority.signed(name);
        polder.admin.with_certificate(&certificate, &key).unwrap()
    };
    let front = as_proxy(&authority, "front");
    let ann = front.clone().with_header("X-Remote-User", "ann").with_header("X-Remote-Group", "dev");
    let user = who(&ann);
    assert_eq!(
        (&user["username"], &user["groups"]),
        (&json!("ann"), &json!(["dev", "system:authenticated"]))
    );
    ann.in_plane("acme").get(MAPS).expect(404);
    let tenant = ann.clone().with_header("X-Remote-Extra-polder.dev%2Fplane", "acme");
    tenant.in_plane("acme").get(MAPS).expect(403);
    tenant.in_plane("globex").get(MAPS).expect(404);
    front.get("/livez").expect(401);
    as_proxy(&authority, "back").with_header("X-Remote-User", "ann").get("/api").expect(401);
    // The header of somebody who is no proxy says nothing.
    let admin = polder.admin.clone().with_header("X-Remote-User", "ann");
    assert_eq!(who(&admin)["username"], "polder-admin");
    polder.admin.anonymous().unwrap().with_header("X-Remote-User", "ann").get("/api").expect(403);
    let (certificate, key) = other.signed("front");
    let stranger = polder.admin.with_certificate(&certificate, &key).unwrap();
    assert!(stranger.send("GET", "/api", &[], b"").is_err(), "an authority nobody knows");
}

/// Whatever somebody of one plane shows, in another plane they are nobody: the plane is not there for them, or they are not known.
#[test]
fn no_credential_of_one_plane_is_good_in_another() {
    let (provider, own) = (TokenIssuer::start().unwrap(), TokenIssuer::start().unwrap());
    let mut entry = provider.entry("");
    entry["claimMappings"]["extra"] =
        json!([{"key": "polder.dev/plane", "valueExpression": "claims.tenant"}]);
    let directory = tempfile::tempdir().unwrap();
    let (tokens, authn) = (directory.path().join("tokens.csv"), directory.path().join("authn.yaml"));
    fs::write(&tokens, "").unwrap();
    fs::write(&authn, authentication_file(&[entry])).unwrap();
    let configuration = format!(
        "tokenFile: {}\nauthentication:\n  config: {}\n{LOOPBACK}",
        tokens.display(),
        authn.display()
    );
    let polder = Polder::start_in(directory, &configuration);
    let (acme, _globex) = (polder.plane("acme"), polder.plane("globex"));
    let number = polder.admin.get(&format!("{PLANES}/acme")).expect(200).json()["status"]["number"].clone();
    fs::write(&tokens, format!("static,stan,1,system:masters,{number}\n")).unwrap();
    let body = json!({"spec": {"authentication": {"jwt": [own.entry("")]}}});
    polder.admin.patch(&format!("{PLANES}/acme"), "merge", &body).expect(200);
    let encode = |text: &str| STANDARD.encode(text);
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
            "usage-bootstrap-authentication": encode("true"),
        },
    });
    acme.post("/api/v1/namespaces/kube-system/secrets", &secret).expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let account =
        acme.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request).expect(201).json();
    eventually("the static token is known", || acme.with_token("static").unwrap().get("/api").code == 200);
    let masters = json!(["system:masters"]);
    let with = |token: &str| acme.with_token(token).unwrap();
    let rows = [
        ("certificate", acme.clone(), 404),
        ("static token", with("static"), 404),
        ("service account", with(account["status"]["token"].as_str().unwrap()), 404),
        ("bootstrap token", with("abcdef.0123456789abcdef"), 401),
        ("issuer of the plane", with(&own.token(&json!({"sub": "ann", "groups": masters})).unwrap()), 401),
        (
            "confined by the server's issuer",
            with(&provider.token(&json!({"sub": "ann", "groups": masters, "tenant": "acme"})).unwrap()),
            404,
        ),
    ];
    for (what, client, code) in rows {
        assert!([200, 403].contains(&client.get(MAPS).code), "{what} at home");
        for other in [client.in_plane("globex"), client.at_root()] {
            for path in ["/api", MAPS, "/apis/rbac.authorization.k8s.io/v1/clusterroles"] {
                assert_eq!(other.get(path).code, code, "{what} elsewhere: {path}");
            }
        }
        assert_eq!(client.in_plane("nowhere").get("/api").code, code, "{what}: as where nothing is");
    }
}

/// kubectl comes with a token of an issuer, given or made by a credential plugin; the Python client too.
#[test]
fn clients_bring_tokens_of_issuers() {
    let issuer = TokenIssuer::start().unwrap();
    let polder = with_issuers(&[], LOOPBACK);
    let acme = polder.plane("acme");
    let body = json!({"spec": {"authentication": {"jwt": [issuer.entry("")]}}});
    polder.admin.patch(&format!("{PLANES}/acme"), "merge", &body).expect(200);
    bind(&acme, "dev", "Group", "dev");
    let token = issuer.token(&json!({"sub": "ann", "groups": ["dev"]})).unwrap();
    let cluster: String = {
        let text = fs::read_to_string(polder.plane_kubeconfig("acme")).unwrap();
        text.lines()
            .filter(|line| line.contains("server:") || line.contains("certificate-authority-data:"))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    let kubeconfig = |name: &str, user: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n{cluster}\
             users:\n- name: u\n  user: {user}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\n"
        );
        polder.file(name, &text)
    };
    let given = kubeconfig("token.kubeconfig", &json!({"token": token}).to_string());
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    });
    let plugin = polder.file("plugin", &format!("#!/bin/sh\necho '{credential}'\n"));
    let exec = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": [plugin], "interactiveMode": "Never",
    }});
    let made = kubeconfig("exec.kubeconfig", &exec.to_string());
    if let Some(kubectl) = tools::find("POLDER_TEST_KUBECTL_CURRENT", "kubectl 1.35") {
        for config in [&given, &made] {
            let run = |arguments: &[&str]| {
                let output =
                    Command::new(&kubectl).arg("--kubeconfig").arg(config).args(arguments).output().unwrap();
                assert!(
                    output.status.success(),
                    "{arguments:?}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                String::from_utf8(output.stdout).unwrap()
            };
            assert!(run(&["auth", "whoami"]).contains("ann"));
            assert!(run(&["get", "namespaces"]).contains("kube-system"));
        }
    }
    if let Some(python) = tools::find("POLDER_TEST_PYTHON", "Python client") {
        let script = "import sys\nfrom kubernetes import client, config\nconfig.load_kube_config(sys.argv[1])\n\
                      print(len(client.CoreV1Api().list_namespace().items))\n";
        for config in [&given, &made] {
            let output = Command::new(&python).args(["-c", script]).arg(config).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// An OpenID provider that people run, dex: sign in there, and the ID token is good here.
#[test]
fn a_real_provider() {
    let Some(program) = tools::find("POLDER_TEST_OPENID_PROVIDER", "OpenID provider") else { return };
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let directory = tempfile::tempdir().unwrap();
    let (certificate_file, key_file) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    fs::write(&certificate_file, &certificate).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let mut provider = Command::new(program)
        .args([&certificate_file, &key_file])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(directory.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(provider.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let log = || fs::read_to_string(directory.path().join("log")).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no token: {line} {}", log()));
    let entry = json!({
        "issuer": {"url": told["issuer"], "certificateAuthority": certificate, "audiences": ["polder"]},
        "claimMappings": {
            "username": {"expression": "'openid:' + claims.email"},
            "groups": {"expression": "[claims.name].map(group, 'openid:' + group)"},
        },
        "claimValidationRules": [{"expression": "claims.email_verified == true"}],
        "userValidationRules": [{"expression": "!user.username.startsWith('system:')"}],
    });
    let polder = with_issuers(std::slice::from_ref(&entry), LOOPBACK);
    let acme = polder.plane("acme");
    let body = json!({"spec": {"authentication": {"jwt": [entry]}}});
    polder.admin.patch(&format!("{PLANES}/acme"), "merge", &body).expect(200);
    let token = told["token"].as_str().unwrap();
    for client in [polder.admin.with_token(token).unwrap(), acme.with_token(token).unwrap()] {
        let user = who(&client);
        assert_eq!(
            (&user["username"], &user["groups"][0]),
            (&json!("openid:ann@example.com"), &json!("openid:ann")),
            "{user}"
        );
    }
    // And kubectl with it, given or brought by a credential plugin.
    if let Some(program) = tools::find("POLDER_TEST_KUBECTL_CURRENT", "kubectl 1.35") {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
        });
        let credential = polder.file("credential.json", &credential.to_string());
        let exec = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [credential], "interactiveMode": "Never",
        }});
        bind(&acme, "dev", "Group", "openid:ann");
        for (name, user) in [("given", json!({"token": token})), ("brought", exec)] {
            let file = kubeconfig(&polder, "acme", name, &user);
            let (success, said) = kubectl(&program, &file, &["auth", "whoami"]);
            assert!(success && said.contains("openid:ann"), "{said}");
            let (success, said) = kubectl(&program, &file, &["get", "namespaces"]);
            assert!(success && said.contains("kube-system"), "{said}");
        }
    }
    drop(provider.stdin.take());
    provider.wait().unwrap();
}

/// `polder plane` says as whom it asked.
#[test]
fn refusals_name_the_user() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("tokens.csv"), "good,ann,1\n").unwrap();
    let configuration = with_files(&directory, &[("tokenFile", "tokens.csv")]);
    let polder = Polder::start_in(directory, &configuration);
    let admin = fs::read_to_string(polder.data().join("admin.kubeconfig")).unwrap();
    let said = |token: &str| {
        let own = admin.lines().filter(|line| !line.contains("client-")).map(|line| match line.trim() {
            "user:" => format!("  user: {{token: {token}}}\n"),
            _ => format!("{line}\n"),
        });
        let file = polder.file("own.kubeconfig", &own.collect::<String>());
        let output =
            crate::process::polder().args(["plane", "list", "--kubeconfig"]).arg(file).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said("good");
    assert!(
        text.contains("user \"polder-admin\" of ") && text.contains("own.kubeconfig may not do this"),
        "{text}"
    );
    let text = said("bad");
    assert!(text.contains("does not know user \"polder-admin\" of "), "{text}");
}

/// The provider's own certificate is shown, told of in kubeconfigs and planes, and replaced when its files are; one that is wrong is not
/// taken over, and at the start it is an error.
#[test]
fn the_provider_brings_a_certificate() {
    let (authority, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_path_buf();
    let lay = |authority: &Authority| {
        let (certificate, key) = authority.serving();
        fs::write(place.join("ca.pem"), &authority.pem).unwrap();
        fs::write(place.join("tls.key"), key).unwrap();
        fs::write(place.join("tls.pem"), certificate).unwrap();
    };
    lay(&authority);
    let file = |name: &str| place.join(name).display().to_string();
    let configuration = format!(
        "tls:\n- {{certFile: {}, keyFile: {}, caFile: {}}}\n",
        file("tls.pem"),
        file("tls.key"),
        file("ca.pem")
    );
    let polder = Polder::start_in(directory, &configuration);
    let acme = polder.plane("acme");
    let kubeconfig = || fs::read_to_string(polder.data().join("admin.kubeconfig")).unwrap();
    // Whoever trusts nothing but an authority.
    let believes = |authority: &Authority| {
        let text = kubeconfig();
        let told = text.lines().find(|line| line.contains("certificate-authority-data")).unwrap();
        let only = format!("    certificate-authority-data: {}", STANDARD.encode(&authority.pem));
        let client = Client::from_kubeconfig(&text.replace(told, &only)).unwrap();
        client.send("GET", "/api", &[], b"").is_ok_and(|reply| reply.code == 200)
    };
    assert!(believes(&authority) && !believes(&other));
    let told = |client: &Client| {
        let map = client.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt").expect(200).json();
        map["data"]["ca.crt"].as_str().unwrap().to_owned()
    };
    eventually("the plane is told", || told(&acme).contains(authority.pem.trim()));

    lay(&other);
    eventually("the other one is shown", || believes(&other));
    assert!(!believes(&authority));
    eventually("it is told", || {
        let admin = Client::from_kubeconfig(&kubeconfig()).unwrap();
        let reply = admin.send("GET", "/api", &[], b"");
        reply.is_ok() && told(&admin.in_plane("acme")).contains(other.pem.trim())
    });
    fs::write(place.join("tls.key"), "nothing").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert!(believes(&other), "what is wrong is not taken over");
    let (_, directory) = polder.stop();
    let mut command = crate::process::serve(&directory.path().join("data"), "127.0.0.1:0");
    command.arg("--config").arg(directory.path().join("config.yaml"));
    let said = crate::process::refused(command);
    assert!(said.contains("tls.pem cannot be used"), "{said}");
}

/// An authority for certificates of clients.
struct Authority {
    pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "proxies");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::from_ca_cert_pem(&pem, key).unwrap(), pem }
    }

    /// A certificate that would be an administrator's if this authority were the server's.
    fn signed(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// The same for a server on loopback.
    fn serving(&self) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.subject_alt_names = vec![rcgen::SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
