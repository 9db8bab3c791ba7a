//! Writing DER: as much of it as a certificate needs. What is written is built from the inside out.

pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;

/// An element of a tag with its contents.
pub(super) fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let len = contents.len();
    if len < 0x80 {
        out.extend(u8::try_from(len));
    } else {
        let digits = len.to_be_bytes();
        let digits = &digits[digits.iter().position(|digit| *digit != 0).unwrap_or(0)..];
        out.extend(u8::try_from(digits.len()).map(|count| 0x80 | count));
        out.extend(digits);
    }
    out.extend(contents);
    out
}

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// A positive number, given by its digits.
pub(super) fn integer(digits: &[u8]) -> Vec<u8> {
    let digits = &digits[digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len())..];
    let sign: &[u8] = if digits.first().is_none_or(|first| *first >= 0x80) { &[0] } else { &[] };
    element(0x02, &[sign, digits].concat())
}

/// Bits in whole bytes.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

/// Named bits, the first one first: without those that are not set at the end.
pub(super) fn flags(set: u16) -> Vec<u8> {
    let bytes = set.reverse_bits().to_be_bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let unused = bytes[..len].last().map_or(0, |last| last.trailing_zeros());
    let mut contents: Vec<u8> = u8::try_from(unused).into_iter().collect();
    contents.extend(&bytes[..len]);
    element(BIT_STRING, &contents)
}

/// A time in seconds since 1970, as certificates have it: two digits of the year until 2049.
pub(super) fn time(seconds: i64) -> Option<Vec<u8>> {
    let time = jiff::Timestamp::from_second(seconds).ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    Some(match time.year() {
        1950..2050 => element(0x17, time.strftime("%y%m%d%H%M%SZ").to_string().as_bytes()),
        _ => element(0x18, time.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements() {
        assert_eq!(element(4, &[7]), [4, 1, 7]);
        assert_eq!(element(4, &[0; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(element(4, &[0; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
        assert_eq!(integer(&[0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0]), [2, 1, 0]);
        assert_eq!(flags(0), [3, 1, 0]);
        assert_eq!(flags(0b101), [3, 2, 5, 0b1010_0000], "digital signature, key encipherment");
        assert_eq!(flags(1 << 8), [3, 3, 7, 0, 0x80], "decipher only");
        assert_eq!(time(0).unwrap(), [&[0x17, 13][..], b"700101000000Z"].concat());
        assert_eq!(time(4_102_444_800).unwrap(), [&[0x18, 15][..], b"21000101000000Z"].concat());
    }
}
