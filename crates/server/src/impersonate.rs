//! Acting as somebody else: the `Impersonate-*` headers, for those who may.
//!
//! The headers are never ignored: whoever asks to be less must not be answered as more. Somebody else is of the same
//! plane as the one who asks: nobody leaves their plane by another name.

use http::HeaderMap;
use polder_auth::authz::{Attributes, Selectors, Target, refusal};
use polder_auth::{UserInfo, each_once};
use polder_model::{GroupResource, PlaneId, SmolStr, Status};
use polder_registry::Registry;

use crate::route::percent_decode;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Somebody is no more at once: each group and each value is asked about by itself.
const WANTED_LEN_MAX: usize = 256;

/// One thing somebody wants to be.
struct Wanted {
    resource: GroupResource,
    namespace: SmolStr,
    name: SmolStr,
    subresource: SmolStr,
}

/// Whether somebody wants to be somebody else.
pub(crate) fn is_impersonation(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

/// The user a request is answered for.
pub(crate) async fn impersonated(
    registry: &Registry,
    plane: PlaneId,
    user: UserInfo,
    headers: &HeaderMap,
) -> Result<UserInfo, Status> {
    if !is_impersonation(headers) {
        return Ok(user);
    }
    let (wanted, mut other) = read(headers)?;
    if wanted.is_empty() {
        return Ok(user);
    }
    for one in &wanted {
        let target = Target::Resource {
            resource: &one.resource,
            version: "v1",
            subresource: &one.subresource,
            namespace: &one.namespace,
            name: &one.name,
        };
        let selectors = Selectors::default();
        let attributes = Attributes { user: &user, plane, verb: "impersonate", target, selectors };
        let decision = registry.authorizer.authorize(&attributes).await?;
        if !decision.is_allow() {
            return Err(Status::forbidden(&one.resource, &one.name, &refusal(&attributes, &decision)));
        }
    }
    other.home = user.home.or((plane != PlaneId::CORE).then_some(plane));
    Ok(other)
}

/// What the headers ask for, and who that is.
fn read(headers: &HeaderMap) -> Result<(Vec<Wanted>, UserInfo), Status> {
    let texts = |name: &str| -> Result<Vec<SmolStr>, Status> {
        let texts = headers.get_all(name).iter().map(|value| value.to_str().map(SmolStr::new));
        texts
            .collect::<Result<_, _>>()
            .map_err(|_| Status::bad_request(format!("the header {name} is no text")))
    };
    let core = |resource: &str, namespace: &str, name: &SmolStr| Wanted {
        resource: GroupResource::new("", resource),
        namespace: namespace.into(),
        name: name.clone(),
        subresource: SmolStr::default(),
    };
    let mut wanted = Vec::new();
    let name = texts(USER)?.into_iter().next().filter(|name| !name.is_empty());
    let mut groups = each_once(texts(GROUP)?);
    wanted.extend(groups.iter().map(|group| core("groups", "", group)));
    let uid = texts(UID)?.into_iter().next().unwrap_or_default();
    if !uid.is_empty() {
        let resource = GroupResource::new(AUTHENTICATION, "uids");
        wanted.push(Wanted { resource, ..core("", "", &uid) });
    }
    let mut extra: Vec<(SmolStr, Vec<SmolStr>)> = Vec::new();
    for header in headers.keys().filter(|name| name.as_str().starts_with(EXTRA)) {
        let escaped = &header.as_str()[EXTRA.len()..];
        let key = SmolStr::from(percent_decode(escaped).unwrap_or_else(|| escaped.to_string()));
        let values = texts(header.as_str())?;
        for value in &values {
            let resource = GroupResource::new(AUTHENTICATION, "userextras");
            wanted.push(Wanted { resource, subresource: key.clone(), ..core("", "", value) });
        }
        extra.push((key, values));
    }
    if wanted.len() >= WANTED_LEN_MAX {
        return Err(Status::bad_request(format!(
            "somebody is impersonated with more than {} groups and values of extra: ask for fewer",
            WANTED_LEN_MAX - 1
        )));
    }
    let Some(name) = name else {
        if wanted.is_empty() {
            return Ok((wanted, UserInfo::anonymous()));
        }
        return Err(Status::bad_request("requested groups, uid or extra without impersonating a user"));
    };
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, account)) => {
            wanted.insert(0, core("serviceaccounts", namespace, &SmolStr::new(account)));
            if groups.is_empty() {
                groups.push(SmolStr::new_static("system:serviceaccounts"));
                groups.push(SmolStr::from(format!("system:serviceaccounts:{namespace}")));
            }
        }
        None => wanted.insert(0, core("users", "", &name)),
    }
    let anonymous = name == "system:anonymous";
    let (own, opposite) = if anonymous {
        ("system:unauthenticated", "system:authenticated")
    } else {
        ("system:authenticated", "system:unauthenticated")
    };
    // Who was asked for with one of the two stays with it.
    if !groups.iter().any(|group| group == own || (!anonymous && group == opposite)) {
        groups.push(SmolStr::new(own));
    }
    Ok((wanted, UserInfo { name, uid, groups, extra, home: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_meant() {
        fn check(headers: &[(&'static str, &'static str)], expected: &str) {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            let found = match read(&map) {
                Err(status) => format!("{} {}", status.code, status.message),
                Ok((wanted, user)) => {
                    let wanted: Vec<String> = wanted
                        .iter()
                        .map(|one| {
                            let Wanted { resource, namespace, name, subresource } = one;
                            format!(
                                "{}/{}/{namespace}/{name}/{subresource}",
                                resource.group, resource.resource
                            )
                        })
                        .collect();
                    let groups: Vec<&str> = user.groups.iter().map(SmolStr::as_str).collect();
                    format!("{} is {} in {}", wanted.join(" "), user.name, groups.join(","))
                }
            };
            assert_eq!(found, expected, "{headers:?}");
        }
        check(&[(USER, "ann")], "/users//ann/ is ann in system:authenticated");
        check(
            &[(USER, "ann"), (GROUP, "dikes"), (GROUP, "system:masters")],
            "/users//ann/ /groups//dikes/ /groups//system:masters/ is ann in dikes,system:masters,system:authenticated",
        );
        check(
            &[(USER, "system:serviceaccount:ns:bot")],
            "/serviceaccounts/ns/bot/ is system:serviceaccount:ns:bot in system:serviceaccounts,\
             system:serviceaccounts:ns,system:authenticated",
        );
        check(
            &[(USER, "system:anonymous")],
            "/users//system:anonymous/ is system:anonymous in system:unauthenticated",
        );
        check(
            &[(USER, "ann"), (UID, "7"), ("impersonate-extra-a%2fb", "c")],
            "/users//ann/ authentication.k8s.io/uids//7/ authentication.k8s.io/userextras//c/a/b is ann in \
             system:authenticated",
        );
        check(&[(GROUP, "dikes")], "400 requested groups, uid or extra without impersonating a user");
        check(&[(USER, "")], " is system:anonymous in system:unauthenticated");
    }

    #[test]
    fn nobody_is_very_many_at_once() {
        for name in [GROUP, "impersonate-extra-x"] {
            let mut map = HeaderMap::new();
            map.insert(USER, "ann".parse().unwrap());
            let mut wanted = |number: usize| {
                map.append(name, format!("g{number}").parse().unwrap());
                read(&map).map(|(wanted, _)| wanted.len()).map_err(|status| status.code)
            };
            let last = (1..WANTED_LEN_MAX).map(&mut wanted).last();
            assert_eq!(last, Some(Ok(WANTED_LEN_MAX)), "{name}");
            assert_eq!(wanted(WANTED_LEN_MAX), Err(400), "{name}");
        }
    }
}
