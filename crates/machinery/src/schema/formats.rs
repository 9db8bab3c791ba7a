//! String formats that a custom resource schema may ask for: exactly those that Kubernetes enforces.
//!
//! Everything else (`int32`, `double`, made-up names) is ignored there and here.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use polder_model::names::{is_dns_label, is_dns_subdomain};
use regex::Regex;

use super::timestamp;

/// A known format: whether a text has it.
pub type Format = fn(&str) -> bool;

/// The check for a format name; `None` when nobody enforces it. Dashes in names do not count.
pub fn format(name: &str) -> Option<Format> {
    let name = if name.contains('-') { &name.replace('-', "") } else { name };
    Some(match name {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "byte" => is_base64,
        "cidr" => is_cidr,
        "creditcard" => is_credit_card,
        "date" => timestamp::is_date,
        "datetime" => is_date_time,
        "duration" => is_duration,
        "email" => is_email,
        "hexcolor" => is_hex_color,
        "hostname" => is_hostname,
        "ipv4" => |text| is_ip(text) && text.contains('.'),
        "ipv6" => |text| text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "k8sshortname" => |text| text.len() <= 63 && is_dns_label(text),
        "k8slongname" => |text| text.len() <= 253 && is_dns_subdomain(text),
        "mac" => is_mac,
        "password" => |_| true,
        "rgbcolor" => is_rgb_color,
        "ssn" => is_ssn,
        "uri" => is_request_uri,
        "uuid" => |text| uuid_digits(text).is_some(),
        "uuid3" => |text| uuid_digits(text).is_some_and(|digits| digits[12] == b'3'),
        "uuid4" => {
            |text| uuid_digits(text).is_some_and(|digits| digits[12] == b'4' && is_variant(digits[16]))
        }
        "uuid5" => {
            |text| uuid_digits(text).is_some_and(|digits| digits[12] == b'5' && is_variant(digits[16]))
        }
        _ => return None,
    })
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// IPv4 with leading zeros tolerated, as before Go 1.17.
fn is_ipv4_sloppy(text: &str) -> bool {
    let is_octet = |part: &str| {
        (1..=3).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse::<u16>().is_ok_and(|octet| octet < 256)
    };
    text.parse::<Ipv4Addr>().is_ok() || (text.split('.').count() == 4 && text.split('.').all(is_octet))
}

fn is_ip(text: &str) -> bool {
    is_ipv4_sloppy(text) || text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_max = if address.contains(':') { 128 } else { 32 };
    is_ip(address)
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse::<u16>().is_ok_and(|bits| bits <= bits_max)
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains(':') {
        ':'
    } else if text.contains('-') {
        '-'
    } else {
        '.'
    };
    let digits = if separator == '.' { 4 } else { 2 };
    let parts: Vec<&str> = text.split(separator).take(21).collect();
    matches!(parts.len() * digits, 12 | 16 | 40)
        && parts.iter().all(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The 32 digits of a UUID in lower case; dashes may stand at their places or be left out, each for itself.
fn uuid_digits(text: &str) -> Option<Vec<u8>> {
    if text.len() > 36 {
        return None;
    }
    let mut digits = Vec::with_capacity(32);
    let mut after_dash = false;
    for byte in text.bytes() {
        match byte {
            b'-' if !after_dash && matches!(digits.len(), 8 | 12 | 16 | 20) => after_dash = true,
            byte if byte.is_ascii_hexdigit() => {
                after_dash = false;
                digits.push(byte.to_ascii_lowercase());
            }
            _ => return None,
        }
    }
    (digits.len() == 32).then_some(digits)
}

fn is_variant(digit: u8) -> bool {
    matches!(digit, b'8' | b'9' | b'a' | b'b')
}

fn without_spaces_and_dashes(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'-').take(20).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    let value = |(index, byte): (usize, &u8)| match byte {
        b'X' if index == 9 => Some(10),
        byte if byte.is_ascii_digit() => Some(u32::from(byte - b'0')),
        _ => None,
    };
    let values: Option<Vec<u32>> = digits.iter().enumerate().map(value).collect();
    values.is_some_and(|values| {
        values.len() == 10 && (1..).zip(values).map(|(place, digit)| place * digit).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    digits.len() == 13
        && digits.iter().all(u8::is_ascii_digit)
        && digits
            .iter()
            .zip([1, 3].into_iter().cycle())
            .map(|(byte, factor)| u32::from(byte - b'0') * factor)
            .sum::<u32>()
            % 10
            == 0
}

fn is_credit_card(text: &str) -> bool {
    static ISSUERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9]{2})[0-9]{12}|3[47][0-9]{13}|\
             3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
        )
        .ok()
    });
    let digits: String = text.chars().filter(char::is_ascii_digit).take(20).collect();
    let luhn = digits.bytes().rev().enumerate().map(|(index, byte)| {
        let digit = u32::from(byte - b'0') << (index % 2);
        digit / 10 + digit % 10
    });
    ISSUERS.as_ref().is_some_and(|issuers| issuers.is_match(&digits)) && luhn.sum::<u32>() % 10 == 0
}

fn is_ssn(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(index, byte)| match index {
            3 | 6 => matches!(byte, b'-' | b' '),
            _ => byte.is_ascii_digit(),
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').take(4).map(str::trim_ascii).collect();
    let is_part = |part: &&str| {
        part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse::<u16>().is_ok_and(|number| number < 256 && number.to_string() == **part)
    };
    parts.len() == 3 && parts.iter().all(is_part)
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        // One bare label, or labels that end in letters.
        let letter = r"[a-zA-Z0-9\p{S}\p{L}]";
        let inner = r"[a-zA-Z0-9\-\p{S}\p{L}]";
        Regex::new(&format!(
            r"^(?:{letter}(?:-?{letter}{{0,62}})?|(?:{letter}(?:{inner}{{0,61}}{letter})?\.)+[a-zA-Z\p{{L}}]{{2,63}})$"
        ))
        .ok()
    });
    text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
        && HOSTNAME.as_ref().is_some_and(|hostname| hostname.is_match(text))
}

/// `user@host`, or `Name <user@host>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.split_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((user, host)) = address.rsplit_once('@') else { return false };
    let is_atom =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte) || !byte.is_ascii();
    let is_dotted = |text: &str| text.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom));
    let is_quoted = |text: &str| {
        text.len() > 2
            && text.starts_with('"')
            && text.ends_with('"')
            && !text[1..text.len() - 1].contains('"')
    };
    (is_dotted(user) || is_quoted(user))
        && (is_dotted(host) || (host.starts_with('[') && host.ends_with(']')))
}

/// Whether the text is a URI with scheme and host.
pub(crate) fn is_absolute_uri(text: &str) -> bool {
    let host = text.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
    is_request_uri(text) && !text.starts_with('/') && !host.is_empty()
}

/// A URI as Go's `url.ParseRequestURI` takes it: absolute, or a path from the root.
fn is_request_uri(text: &str) -> bool {
    let has_bad_byte = text.bytes().any(|byte| byte < 0x20 || byte == 0x7f);
    if text.is_empty() || has_bad_byte || !has_good_percents(text) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return !text.starts_with("//") || has_good_host(&text[2..]);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.bytes().enumerate().all(|(index, byte)| {
        byte.is_ascii_alphabetic() || (index > 0 && (byte.is_ascii_digit() || b"+-.".contains(&byte)))
    });
    !scheme.is_empty() && is_scheme && rest.strip_prefix("//").is_none_or(has_good_host)
}

fn has_good_percents(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or(text);
    path.split('%')
        .skip(1)
        .all(|rest| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn has_good_host(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((_, "")) => return true,
            Some((name, port)) => (name, port.strip_prefix(':').or(Some("bad"))),
            None => return false,
        },
        None => host.rsplit_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    !name.contains([' ', '"', '<', '>', '^', '`', '{', '|', '}', '\\'])
        && port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// RFC 3339, read as loosely as Kubernetes does: any separator before the fraction, no calendar for the zone.
fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let bytes = time.as_bytes();
    if !timestamp::is_date(date) || bytes.len() < 9 || bytes[2] != b':' || bytes[5] != b':' {
        return false;
    }
    let in_range = |at: usize, max: u8| {
        bytes[at].is_ascii_digit()
            && bytes[at + 1].is_ascii_digit()
            && (bytes[at] - b'0') * 10 + bytes[at + 1] - b'0' <= max
    };
    let is_zone = |zone: &[u8]| {
        zone == b"z"
            || (zone.len() == 6
                && matches!(zone[0], b'+' | b'-')
                && zone[3] == b':'
                && [1, 2, 4, 5].iter().all(|at| zone[*at].is_ascii_digit()))
    };
    let rest = &bytes[8..];
    let zone_at = rest.iter().skip(1).position(|byte| !byte.is_ascii_digit()).map_or(rest.len(), |at| at + 1);
    in_range(0, 23)
        && in_range(3, 59)
        && in_range(6, 59)
        && (is_zone(rest) || (rest.len() > 1 && zone_at > 1 && is_zone(&rest[zone_at..])))
}

/// A Go duration (`1h30m`), or numbers with spelled-out units (`22 seconds`).
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || has_spelled_duration(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        if !digits.bytes().any(|byte| byte.is_ascii_digit())
            || digits.matches('.').count() > 1
            || digits.split('.').next().is_some_and(|whole| whole.len() > 19)
        {
            return false;
        }
        let unit = after.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(after.len());
        if !matches!(&after[..unit], "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = &after[unit..];
    }
    true
}

fn has_spelled_duration(text: &str) -> bool {
    const EXACT: [&str; 10] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w"];
    const STARTS: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| char.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        let fits = rest[..digits].parse::<i64>().is_ok();
        rest = rest[digits..].trim_ascii_start();
        let letters =
            rest.find(|char: char| !char.is_ascii_alphabetic() && char != 'µ').unwrap_or(rest.len());
        let unit = rest[..letters].to_lowercase();
        rest = &rest[letters..];
        if unit.is_empty() {
            continue;
        }
        if !fits {
            return false;
        }
        found |= EXACT.contains(&unit.as_str())
            || unit == "wk"
            || STARTS.iter().any(|start| unit.starts_with(start));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, good: &[&str], bad: &[&str]) {
        let format = format(name).unwrap();
        for text in good {
            assert!(format(text), "{text:?} is a {name}");
        }
        for text in bad {
            assert!(!format(text), "{text:?} is no {name}");
        }
    }

    #[test]
    fn known_formats() {
        check("ipv4", &["1.2.3.4", "010.1.1.1", "::ffff:1.2.3.4"], &["1.2.3", "1.2.3.256", "a.b.c.d", ""]);
        check("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "::g", "fe80::1%eth0"]);
        check(
            "cidr",
            &["10.0.0.0/8", "::/0", "10.0.0.1/32"],
            &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+1", "x/1"],
        );
        check(
            "mac",
            &["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab"],
            &["01:23", "01:23:45:67:89:ag"],
        );
        check(
            "uuid",
            &["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B8109DAD11D180B400C04FD430C8"],
            &["6ba7b810", ""],
        );
        check("uuid4", &["f47ac10b-58cc-4372-8567-0e02b2c3d479"], &["6ba7b810-9dad-11d1-80b4-00c04fd430c8"]);
        check("date", &["2024-02-29"], &["2023-02-29", "2024-2-1", "2024-13-01", "x"]);
        check(
            "date-time",
            &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+02:00", "2014-12-15T19:30:20Z"],
            &["2014-12-15", "2014-12-15T24:00:00Z", "2014-12-15T19:30:20", "2014-12-15T19:30:2é"],
        );
        check("duration", &["1h30m", "22 ns", "1.5s", "0", "-3m", "2 weeks"], &["", "abc", "5", "1x"]);
        check("email", &["a@b.c", "A B <a@b>"], &["a", "@b", "a@", "a b@c"]);
        check("hostname", &["a", "example.com", "a-b.example.com"], &["", "-a", "a..b", "a_b.c", "1.2.3.4"]);
        check(
            "uri",
            &["https://a.b/c?d#e", "/path", "urn:x"],
            &["", "a/b", "https://a b/", "http://a:x/", "/%zz"],
        );
        check("byte", &["YWJj", "YQ=="], &["", "YQ", "Y*=="]);
        check("isbn", &["0321751043", "978-0321751041"], &["0321751044", "x"]);
        check("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", ""]);
        check("hexcolor", &["#fff", "a1B2c3"], &["#ffff", "ggg"]);
        check("rgbcolor", &["rgb(0, 12,255)"], &["rgb(0,0,256)", "rgb(1,2)", "rgb(01,2,3)"]);
        check("ssn", &["123-45-6789"], &["123456789", "123-45-678a"]);
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f", "zzzf1f77bcf86cd799439011"]);
        check("k8s-short-name", &["a-b"], &["A", "a.b", ""]);
        check("k8s-long-name", &["a-b.c"], &["a..b", ""]);
        check("password", &["", "x"], &[]);
    }

    #[test]
    fn unknown_formats_are_ignored() {
        for name in ["int32", "int64", "double", "float", "", "made-up"] {
            assert!(format(name).is_none(), "{name}");
        }
    }
}
