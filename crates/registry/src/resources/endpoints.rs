//! Endpoints.

use polder_model::{FieldError, FieldPath, Value};

use super::{addresses, cells, checks};
use crate::behavior::{Behavior, Column, Print};

/// More addresses than these are only counted.
const SHOWN_MAX: usize = 3;

pub(super) const ENDPOINTS: Behavior = Behavior {
    resource: "endpoints",
    create_on_update: true,
    columns: &[Column::NAME, Column::text("Endpoints"), Column::AGE],
    cells,
    validate,
    ..Behavior::PLAIN
};

fn cells(endpoints: &Value, print: &Print) -> Vec<Value> {
    vec![cells::name(endpoints), addresses(endpoints).into(), cells::age(endpoints, print)]
}

fn addresses(endpoints: &Value) -> String {
    let subsets = endpoints.array_at(&["subsets"]);
    if subsets.is_empty() {
        return "<none>".into();
    }
    let (mut shown, mut count) = (Vec::new(), 0);
    for subset in subsets {
        let addresses = subset.array_at(&["addresses"]);
        let ips = || addresses.iter().map(|address| checks::text(address, "ip"));
        let ports = subset.array_at(&["ports"]);
        if ports.is_empty() {
            count += addresses.len();
            shown.extend(ips().take(SHOWN_MAX - shown.len()).map(str::to_owned));
        }
        for port in ports {
            count += addresses.len();
            let port = cells::count(port, &["port"]);
            shown.extend(
                ips().take(SHOWN_MAX - shown.len()).map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }),
            );
        }
    }
    let text = shown.join(",");
    if count > SHOWN_MAX { format!("{text} + {} more...", count - SHOWN_MAX) } else { text }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if old.is_some_and(|old| old.get("subsets") == new.get("subsets")) {
        return;
    }
    let path = FieldPath::root("subsets");
    for (index, subset) in new.array_at(&["subsets"]).iter().enumerate() {
        validate_subset(subset, &path.index(index), errors);
    }
    addresses::spare_api(new, errors);
}

fn validate_subset(subset: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|list| subset.array_at(&[list]).is_empty()) {
        errors.push(FieldError::required(path, "must specify `addresses` or `notReadyAddresses`"));
    }
    for list in lists {
        let path = path.member(list);
        for (index, address) in subset.array_at(&[list]).iter().enumerate() {
            let path = path.index(index);
            let ip = checks::text(address, "ip");
            addresses::ip(ip, &path.member("ip"), errors);
            let hostname = checks::text(address, "hostname");
            if !hostname.is_empty() {
                checks::dns_label(hostname, &path.member("hostname"), errors);
            }
            if let Some(node) = address.str_at(&["nodeName"]) {
                checks::dns_subdomain(node, &path.member("nodeName"), errors);
            }
            addresses::endpoint_ip(ip, &path.member("ip"), errors);
        }
    }
    let ports = subset.array_at(&["ports"]);
    let path = path.member("ports");
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        match checks::text(port, "name") {
            "" if ports.len() > 1 => errors.push(FieldError::required(path.member("name"), "")),
            "" => {}
            name => checks::dns_label(name, &path.member("name"), errors),
        }
        checks::port_number(cells::count(port, &["port"]), &path.member("port"), errors);
        checks::one_of_required(port, "protocol", &checks::PROTOCOLS, &path, errors);
        if let Some(protocol) = port.str_at(&["appProtocol"]) {
            checks::qualified_name(protocol, &path.member("appProtocol"), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{prints, refuses};
    use super::ENDPOINTS;

    #[test]
    fn cells() {
        let rows = [
            ("", "<none>"),
            (r#"{"addresses":[{"ip":"1.1.1.1"},{"ip":"::1"}],"ports":[{"port":80}]}"#, "1.1.1.1:80,[::1]:80"),
            (
                r#"{"addresses":[{"ip":"1.1.1.1"},{"ip":"1.1.1.2"}],"ports":[{"port":80},{"port":81}]}"#,
                "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 1 more...",
            ),
            (r#"{"addresses":[{"ip":"1.1.1.1"}]}"#, "1.1.1.1"),
            (r#"{"notReadyAddresses":[{"ip":"1.1.1.1"}]}"#, ""),
        ];
        for (subset, expected) in rows {
            prints(
                &ENDPOINTS,
                &format!(r#"{{"metadata":{{"name":"e"}},"subsets":[{subset}]}}"#),
                &format!("e|{expected}|<unknown>"),
            );
        }
    }

    #[test]
    fn checks() {
        let bad = r#"{"subsets":[{},{"addresses":[{"ip":"127.0.0.1"},{"ip":"x"}],"ports":[{"port":0},{"port":1,"name":"a"}]}]}"#;
        refuses(
            &ENDPOINTS,
            bad,
            None,
            &[
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                r#"subsets[1].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
                r#"subsets[1].addresses[1].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                r#"subsets[1].addresses[1].ip: Invalid value: "x": must be a valid IP address"#,
                "subsets[1].ports[0].name: Required value",
                "subsets[1].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        );
        refuses(&ENDPOINTS, bad, Some(bad), &[]);
        let api = r#"{"metadata":{"name":"kubernetes","namespace":"default"},"subsets":[{"addresses":[{"ip":"127.0.0.1"}]}]}"#;
        refuses(&ENDPOINTS, api, None, &[]);
    }
}
