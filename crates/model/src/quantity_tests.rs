//! Texts of ours with what upstream makes of them.

use super::*;
use crate::json;

#[test]
fn canonical_like_upstream() {
    let rows = [
        ("0", "0"),
        ("1", "1"),
        ("+1", "+1"),
        ("-1", "-1"),
        ("001", "001"),
        ("10", "10"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1."),
        ("-0.5", "-500m"),
        ("1.5", "1500m"),
        ("1.500", "1.500"),
        ("1.50", "1500m"),
        ("1.000", "1"),
        ("0.500", "500m"),
        ("12.345", "12.345"),
        ("100m", "100m"),
        ("1500m", "1500m"),
        ("1000000m", "1k"),
        ("1u", "1u"),
        ("1000u", "1m"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1.0000000001", "1000000001n"),
        ("-1.0000000001", "-1000000001n"),
        ("0.0000000001", "1n"),
        ("999n", "999n"),
        ("1k", "1k"),
        ("1000k", "1M"),
        ("1024k", "1024k"),
        ("1M", "1M"),
        ("1G", "1G"),
        ("1T", "1T"),
        ("1P", "1P"),
        ("1E", "1E"),
        ("10E", "10E"),
        ("0.001E", "1P"),
        ("5000000k", "5G"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("1e+3", "1e+3"),
        ("1e-3", "1e-3"),
        ("1e1", "10"),
        ("1e2", "100"),
        ("100e2", "10e3"),
        ("1e0", "1e0"),
        ("1e9", "1e9"),
        ("1e-9", "1e-9"),
        ("1e-10", "1e-9"),
        ("1e100", "10e99"),
        ("12e6", "12e6"),
        ("0.5e3", "500"),
        ("1.5e3", "1500"),
        ("-1e3", "-1e3"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1.5Ki", "1536"),
        ("0.5Ki", "512"),
        ("0.5Mi", "512Ki"),
        ("512Ki", "512Ki"),
        ("1025Ki", "1025Ki"),
        ("+5Ki", "+5Ki"),
        ("05Ki", "05Ki"),
        ("-5Ki", "-5Ki"),
        ("-1.5Gi", "-1536Mi"),
        ("0Ki", "0"),
        ("8Ki", "8Ki"),
        ("16Mi", "16Mi"),
        ("100Mi", "100Mi"),
        ("1023Ki", "1023Ki"),
        ("1000Ki", "1000Ki"),
        ("0.001Ki", "1024m"),
        ("0.0001Ki", "102400u"),
        ("1.1Mi", "1153433600m"),
        ("1.123456789Gi", "1206302541806043136n"),
        ("1Ti", "1Ti"),
        ("1Pi", "1Pi"),
        ("1Ei", "1Ei"),
        ("7Ei", "7Ei"),
        ("8Ei", "9223372036854775807"),
        ("16Ei", "9223372036854775807"),
        ("1000000Ei", "9223372036854775807"),
        ("-16Ei", "-9223372036854775807"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("123456789012345678", "123456789012345678"),
        ("1234567890123456789", "1234567890123456789"),
        ("1.123456789012345678", "1123456790n"),
        ("9223372036854775807Ki", "9223372036854775807"),
        ("128974848", "128974848"),
        ("129e6", "129e6"),
        ("129M", "129M"),
        ("123Mi", "123Mi"),
        ("64Mi", "64Mi"),
        ("250m", "250m"),
        ("2.5", "2500m"),
        ("0.1", "100m"),
        ("1.2k", "1200"),
        ("1.2345k", "1234500m"),
        ("1.23456k", "1234560m"),
        ("0.3Gi", "322122547200m"),
        ("3.5Gi", "3584Mi"),
        ("100000000000n", "100"),
        ("10000000m", "10k"),
        (".", "0"),
        ("+", "0"),
        ("-", "0"),
        ("Ki", "0"),
        ("m", "0"),
        ("e3", "0"),
        ("-.5", "-500m"),
        ("00", "0"),
        ("-0", "0"),
        ("0m", "0"),
        ("0.0", "0"),
        ("+0.0", "0"),
        // Upstream loses the thousands here and prints 1.
        ("1000E", "1e21"),
        ("1000000000000000000000", "1e21"),
    ];
    for (text, canonical) in rows {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!(quantity.to_string(), canonical, "{text}");
        assert_eq!(Quantity::parse(canonical).unwrap(), quantity, "{text} means the same when read again");
    }
}

#[test]
fn values_like_upstream() {
    let rows = [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("+1", 1, 1000),
        ("-1", -1, -1000),
        ("001", 1, 1000),
        ("10", 10, 10000),
        ("1000", 1000, 1000000),
        ("1000m", 1, 1000),
        ("0.5", 1, 500),
        (".5", 1, 500),
        ("1.", 1, 1000),
        ("-0.5", -1, -500),
        ("1.5", 2, 1500),
        ("1.500", 2, 1500),
        ("1.50", 2, 1500),
        ("1.000", 1, 1000),
        ("0.500", 1, 500),
        ("12.345", 13, 12345),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("1000000m", 1000, 1000000),
        ("1u", 1, 1),
        ("1000u", 1, 1),
        ("1n", 1, 1),
        ("0.1n", 1, 1),
        ("1.0000000001", 2, 1001),
        ("0.0000000001", 1, 1),
        ("999n", 1, 1),
        ("1k", 1000, 1000000),
        ("1000k", 1000000, 1000000000),
        ("1024k", 1024000, 1024000000),
        ("1M", 1000000, 1000000000),
        ("1G", 1000000000, 1000000000000),
        ("1T", 1000000000000, 1000000000000000),
        ("1P", 1000000000000000, 1000000000000000000),
        ("0.001E", 1000000000000000, 1000000000000000000),
        ("5000000k", 5000000000, 5000000000000),
        ("1e3", 1000, 1000000),
        ("1E3", 1000, 1000000),
        ("1e+3", 1000, 1000000),
        ("1e-3", 1, 1),
        ("1e1", 10, 10000),
        ("1e2", 100, 100000),
        ("100e2", 10000, 10000000),
        ("1e0", 1, 1000),
        ("1e9", 1000000000, 1000000000000),
        ("1e-9", 1, 1),
        ("1e-10", 1, 1),
        ("12e6", 12000000, 12000000000),
        ("0.5e3", 500, 500000),
        ("1.5e3", 1500, 1500000),
        ("-1e3", -1000, -1000000),
        ("1Ki", 1024, 1024000),
        ("1024Ki", 1048576, 1048576000),
        ("1024Mi", 1073741824, 1073741824000),
        ("1.5Gi", 1610612736, 1610612736000),
        ("1.5Ki", 1536, 1536000),
        ("0.5Ki", 512, 512000),
        ("0.5Mi", 524288, 524288000),
        ("512Ki", 524288, 524288000),
        ("1025Ki", 1049600, 1049600000),
        ("+5Ki", 5120, 5120000),
        ("05Ki", 5120, 5120000),
        ("-5Ki", -5120, -5120000),
        ("-1.5Gi", -1610612736, -1610612736000),
        ("0Ki", 0, 0),
        ("8Ki", 8192, 8192000),
        ("16Mi", 16777216, 16777216000),
        ("100Mi", 104857600, 104857600000),
        ("1023Ki", 1047552, 1047552000),
        ("1000Ki", 1024000, 1024000000),
        ("0.001Ki", 2, 1024),
        ("0.0001Ki", 1, 103),
        ("1.1Mi", 1153434, 1153433600),
        ("1.123456789Gi", 1206302542, 1206302541807),
        ("1Ti", 1099511627776, 1099511627776000),
        ("1Pi", 1125899906842624, 1125899906842624000),
        ("1.123456789012345678", 2, 1124),
        ("128974848", 128974848, 128974848000),
        ("129e6", 129000000, 129000000000),
        ("129M", 129000000, 129000000000),
        ("123Mi", 128974848, 128974848000),
        ("64Mi", 67108864, 67108864000),
        ("250m", 1, 250),
        ("2.5", 3, 2500),
        ("0.1", 1, 100),
        ("1.2k", 1200, 1200000),
        ("1.2345k", 1235, 1234500),
        ("1.23456k", 1235, 1234560),
        ("0.3Gi", 322122548, 322122547200),
        ("3.5Gi", 3758096384, 3758096384000),
        ("100000000000n", 100, 100000),
        ("10000000m", 10000, 10000000),
        (".", 0, 0),
        ("+", 0, 0),
        ("-", 0, 0),
        ("Ki", 0, 0),
        ("m", 0, 0),
        ("e3", 0, 0),
        ("-.5", -1, -500),
        ("00", 0, 0),
        ("-0", 0, 0),
        ("0m", 0, 0),
        ("0.0", 0, 0),
        ("+0.0", 0, 0),
        // Where upstream overflows, we stop.
        ("1Ei", 1 << 60, i64::MAX),
        ("-16Ei", -i64::MAX, i64::MIN),
        ("10E", i64::MAX, i64::MAX),
        ("1e100", i64::MAX, i64::MAX),
        ("-1e100", i64::MIN, i64::MIN),
        ("1e-100", 1, 1),
    ];
    for (text, units, milli) in rows {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!((quantity.as_i64(), quantity.as_milli()), (units, milli), "{text}");
    }
}

#[test]
fn refused_like_upstream() {
    let rows = [
        ("1K", QuantityError::Suffix),
        ("", QuantityError::Format),
        ("abc", QuantityError::Format),
        ("1x", QuantityError::Format),
        (" 1", QuantityError::Format),
        ("1 ", QuantityError::Format),
        ("1kk", QuantityError::Suffix),
        ("1e", QuantityError::Suffix),
        ("1Ki5", QuantityError::Suffix),
        ("1-5", QuantityError::Suffix),
        ("1.2.3", QuantityError::Format),
        ("1e3m", QuantityError::Format),
        ("--1", QuantityError::Suffix),
        ("+-1", QuantityError::Suffix),
        ("1mi", QuantityError::Suffix),
        ("1ki", QuantityError::Suffix),
        ("1KiB", QuantityError::Format),
        ("1e-9223372036854775808", QuantityError::Suffix),
        ("100e1000000", QuantityError::Suffix),
        // Rounding up leaves 38 digits behind.
        ("170141183460469231731687303715884105727.5e-9", QuantityError::Number),
        ("1e1.5", QuantityError::Format),
        ("1i", QuantityError::Suffix),
        ("1e999999999999999999999", QuantityError::Suffix),
        ("é", QuantityError::Format),
        ("1é", QuantityError::Format),
        ("0x10", QuantityError::Format),
        ("1_000", QuantityError::Format),
        ("Infinity", QuantityError::Format),
        ("NaN", QuantityError::Format),
        ("1ee3", QuantityError::Suffix),
        ("1eE3", QuantityError::Suffix),
        ("1e1000001", QuantityError::Suffix),
        (&"1".repeat(40), QuantityError::Number),
        (&"1".repeat(200), QuantityError::Format),
    ];
    for (text, error) in rows {
        assert_eq!(Quantity::parse(text).map(|quantity| quantity.to_string()), Err(error), "{text}");
    }
    assert_eq!(
        QuantityError::Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn arithmetic_like_upstream() {
    let rows = [
        ("1", "1000m", Ordering::Equal, "2", "0"),
        ("1", "2", Ordering::Less, "3", "-1"),
        ("1Ki", "1k", Ordering::Greater, "2024", "24"),
        ("1Gi", "1G", Ordering::Greater, "2073741824", "73741824"),
        ("0", "5Mi", Ordering::Less, "5Mi", "-5Mi"),
        ("5Mi", "0", Ordering::Greater, "5Mi", "5Mi"),
        ("1.5", "1500m", Ordering::Equal, "3", "0"),
        ("100m", "200m", Ordering::Less, "300m", "-100m"),
        ("1", "1Gi", Ordering::Less, "1073741825", "-1073741823"),
        ("1Gi", "1", Ordering::Greater, "1073741825", "1073741823"),
        ("1e3", "1k", Ordering::Equal, "2e3", "0"),
        ("1e3", "500m", Ordering::Greater, "1000500e-3", "999500e-3"),
        ("8Ei", "8Ei", Ordering::Equal, "18446744073709551614", "0"),
        ("9223372036854775807", "1", Ordering::Greater, "9223372036854775808", "9223372036854775806"),
        ("1n", "1E", Ordering::Less, "1000000000000000000000000001n", "-999999999999999999999999999n"),
        ("-1", "1", Ordering::Less, "0", "-2"),
        ("1Mi", "1Ki", Ordering::Greater, "1025Ki", "1023Ki"),
        ("1Ki", "1Mi", Ordering::Less, "1025Ki", "-1023Ki"),
        ("1Mi", "0.5", Ordering::Greater, "1048576500m", "1048575500m"),
        ("0", "0", Ordering::Equal, "0", "0"),
        ("1e100", "1e100", Ordering::Equal, "20e99", "0"),
        ("1e100", "1e99", Ordering::Greater, "11e99", "9e99"),
        ("0.5Gi", "512Mi", Ordering::Equal, "1Gi", "0"),
        (
            "123456789012345678901234567890",
            "1n",
            Ordering::Greater,
            "123456789012345678901234567890000000001n",
            "123456789012345678901234567889999999999n",
        ),
        ("1Ki", "1Ki", Ordering::Equal, "2Ki", "0"),
        ("2", "1024Mi", Ordering::Less, "1073741826", "-1073741822"),
        // More digits than fit: the small one does not show.
        ("-1e100", "1", Ordering::Less, "-10e99", "-10e99"),
    ];
    for (left, right, order, sum, difference) in rows {
        let (left, right) = (Quantity::parse(left).unwrap(), Quantity::parse(right).unwrap());
        assert_eq!(left.cmp(&right), order, "{left} {right}");
        assert_eq!(right.cmp(&left), order.reverse(), "{right} {left}");
        assert_eq!(left.plus(&right).to_string(), sum, "{left} + {right}");
        assert_eq!(left.minus(&right).to_string(), difference, "{left} - {right}");
    }
}

#[test]
fn json_values() {
    for (value, canonical) in
        [(json!("1Gi"), "1Gi"), (json!(" 5 "), "5"), (json!(2), "2"), (Value::Float(0.5), "500m")]
    {
        assert_eq!(Quantity::from_value(&value).unwrap().to_string(), canonical);
    }
    assert!(Quantity::from_value(&json!(true)).is_err());
    assert_eq!(Quantity::from_milli(1500), Quantity::parse("1.5").unwrap());
    assert_eq!(Quantity::from_i64(-2), Quantity::parse("-2").unwrap());
}

#[test]
fn no_text_panics_and_what_parses_prints_the_same_amount() {
    let alphabet = [
        "0", "1", "9", "99999999", "000", ".", "-", "+", "e", "E", "Ki", "Ei", "m", "n", "k", "u", "i", "é",
        "12345",
    ];
    let mut state: u64 = 0xabcd;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    let mut last = Quantity::from_i64(0);
    for _ in 0..50_000 {
        let text: String = (0..below(8)).map(|_| alphabet[below(alphabet.len())]).collect();
        let Ok(quantity) = Quantity::parse(&text) else { continue };
        let again = Quantity { text: None, ..quantity.clone() };
        assert_eq!(Quantity::parse(&again.to_string()).unwrap(), quantity, "{text} {again}");
        assert_eq!(quantity.cmp(&last), last.cmp(&quantity).reverse(), "{text} {last}");
        let _moved = (quantity.plus(&last).to_string(), quantity.minus(&last).as_milli());
        last = quantity;
    }
}
