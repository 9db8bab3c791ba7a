//! What a certificate may be used for, in the words of the certificates API.

/// Usages of the key, each a bit.
const KEY: [(&str, u16); 10] = [
    ("signing", 1 << 0),
    ("digital signature", 1 << 0),
    ("content commitment", 1 << 1),
    ("key encipherment", 1 << 2),
    ("data encipherment", 1 << 3),
    ("key agreement", 1 << 4),
    ("cert sign", 1 << 5),
    ("crl sign", 1 << 6),
    ("encipher only", 1 << 7),
    ("decipher only", 1 << 8),
];

/// Other usages, each the contents of an object identifier.
const EXTENDED: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

/// Bits and identifiers of usages; `None` if one has no such word.
pub(super) fn of<'a>(usages: impl IntoIterator<Item = &'a str>) -> Option<(u16, Vec<&'static [u8]>)> {
    let (mut bits, mut identifiers) = (0, Vec::new());
    for usage in usages {
        if let Some((_, bit)) = KEY.iter().find(|(word, _)| *word == usage) {
            bits |= bit;
        } else {
            let (_, identifier) = EXTENDED.iter().find(|(word, _)| *word == usage)?;
            identifiers.push(*identifier);
        }
    }
    identifiers.sort_unstable();
    identifiers.dedup();
    Some((bits, identifiers))
}
