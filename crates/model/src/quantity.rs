//! Kubernetes quantities: `100m`, `1.5Gi`, `2e3`. Fixed-point numbers that remember which kind of suffix they had.
//!
//! A quantity is an integer times a power of ten, no finer than a nano; what is finer is rounded away from zero, so
//! that whoever asks for something gets something. Arithmetic is exact up to 38 digits and then saturates.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

use crate::Value;

/// Longer texts are refused.
pub const QUANTITY_LEN_MAX: usize = 128;
/// Powers of ten beyond this are refused, written or meant, so that what is printed can be read.
const EXPONENT_MAX: i64 = 1_000_000;
const NANO: i32 = -9;
/// How many digits upstream handles without big numbers; it prints such numbers as they were written if it can.
const FAST_DIGITS_MAX: usize = 18;

/// An amount of something. Equal amounts are equal, however they are written.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// Without factors of ten.
    mantissa: i128,
    scale: i32,
    format: Format,
    /// As it was written, where that counts as canonical.
    text: Option<SmolStr>,
}

/// The kind of suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, `m`: powers of ten.
    Decimal,
    /// `Ki`, `Mi`: powers of two.
    Binary,
    /// `e3`.
    Exponent,
}

/// Text that is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let parts = Parts::split(text)?;
        let (format, exponent) = suffix(parts.suffix)?;
        let mut quantity = match format {
            Format::Binary => parts.binary(exponent)?,
            _ => parts.decimal(format, exponent)?,
        };
        if parts.is_canonical(format, exponent) {
            quantity.text = Some(text.into());
        }
        Ok(quantity)
    }

    /// Reads a JSON value: a string, or a number taken as its text.
    pub fn from_value(value: &Value) -> Result<Quantity, QuantityError> {
        match value {
            Value::String(text) => Quantity::parse(text.trim()),
            Value::Int(_) | Value::Float(_) => Quantity::parse(&value.to_string()),
            _ => Err(QuantityError::Format),
        }
    }

    pub fn from_i64(number: i64) -> Quantity {
        Quantity::new(number.into(), 0, Format::Decimal)
    }

    pub fn from_milli(number: i64) -> Quantity {
        Quantity::new(number.into(), -3, Format::Decimal)
    }

    fn new(mut mantissa: i128, mut scale: i32, format: Format) -> Quantity {
        while mantissa != 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            scale += 1;
        }
        if mantissa == 0 {
            scale = 0;
        }
        Quantity { mantissa, scale, format, text: None }
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// The amount in whole units, rounded away from zero, saturating.
    pub fn as_i64(&self) -> i64 {
        self.as_scaled(0)
    }

    /// The amount in thousandths, rounded away from zero, saturating.
    pub fn as_milli(&self) -> i64 {
        self.as_scaled(-3)
    }

    /// The amount in units of `10^scale`, rounded away from zero, saturating.
    pub fn as_scaled(&self, scale: i32) -> i64 {
        let shift = i64::from(self.scale) - i64::from(scale);
        let power = u32::try_from(shift.unsigned_abs()).ok().and_then(|shift| 10_i128.checked_pow(shift));
        let wide = match (shift >= 0, power) {
            (true, Some(power)) => self.mantissa.saturating_mul(power),
            (true, None) => self.mantissa.saturating_mul(i128::MAX),
            (false, Some(power)) => divide_away_from_zero(self.mantissa, power),
            (false, None) => self.mantissa.signum(),
        };
        i64::try_from(wide).unwrap_or(if wide > 0 { i64::MAX } else { i64::MIN })
    }

    /// The amount in whole units, where it is whole and fits.
    pub fn as_i64_exact(&self) -> Option<i64> {
        self.at_scale(0).filter(|_| self.scale >= 0).and_then(|wide| i64::try_from(wide).ok())
    }

    /// About the amount.
    #[expect(clippy::cast_precision_loss, reason = "about")]
    pub fn as_f64(&self) -> f64 {
        self.mantissa as f64 * 10_f64.powi(self.scale)
    }

    /// The sum, in the format of the left side unless that is zero.
    #[must_use]
    pub fn plus(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        let scale = self.scale.min(other.scale);
        let sum = (self.at_scale(scale))
            .zip(other.at_scale(scale))
            .and_then(|(left, right)| left.checked_add(right));
        match sum {
            Some(sum) => Quantity::new(sum, scale, format),
            // Too far apart for 38 digits: the small one does not show.
            None if self.magnitude_cmp(other) == Ordering::Less => {
                Quantity::new(other.mantissa, other.scale, format)
            }
            None => Quantity::new(self.mantissa, self.scale, format),
        }
    }

    /// The difference, in the format of the left side unless that is zero.
    #[must_use]
    pub fn minus(&self, other: &Quantity) -> Quantity {
        let negative = Quantity { mantissa: other.mantissa.saturating_neg(), text: None, ..other.clone() };
        self.plus(&negative)
    }

    fn at_scale(&self, scale: i32) -> Option<i128> {
        let power = 10_i128.checked_pow(u32::try_from(self.scale - scale).ok()?);
        if self.is_zero() { Some(0) } else { self.mantissa.checked_mul(power?) }
    }

    fn magnitude_cmp(&self, other: &Quantity) -> Ordering {
        let order = |one: &Quantity| {
            one.mantissa.unsigned_abs().checked_ilog10().map(|log| i64::from(log) + i64::from(one.scale))
        };
        order(self).cmp(&order(other)).then_with(|| {
            // Of one order of magnitude, so less than 39 digits apart; what does not fit is larger.
            let scale = self.scale.min(other.scale);
            let aligned = |one: &Quantity| {
                let power = 10_u128.checked_pow(u32::try_from(one.scale - scale).ok()?)?;
                one.mantissa.unsigned_abs().checked_mul(power)
            };
            aligned(self).unwrap_or(u128::MAX).cmp(&aligned(other).unwrap_or(u128::MAX))
        })
    }

    /// Mantissa and power of 1024, where that is exact and large enough to be worth a suffix.
    fn binary_parts(&self) -> Option<(i128, usize)> {
        let mut mantissa = self.at_scale(0).filter(|_| self.scale >= 0)?;
        if self.format != Format::Binary || mantissa.unsigned_abs() < 1024 {
            return None;
        }
        let mut power = 0;
        while mantissa % 1024 == 0 && power < BINARY_SUFFIXES.len() - 1 {
            mantissa /= 1024;
            power += 1;
        }
        Some((mantissa, power))
    }
}

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// The canonical form: no fraction, and the largest suffix that keeps it so.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if let Some((mantissa, power)) = self.binary_parts() {
            return write!(f, "{mantissa}{}", BINARY_SUFFIXES[power]);
        }
        // The exponent goes down to a multiple of three, the mantissa takes zeros for it.
        let zeros = self.scale.rem_euclid(3);
        let exponent = self.scale - zeros;
        write!(f, "{}{}", self.mantissa, ["", "0", "00"][usize::try_from(zeros).unwrap_or_default()])?;
        let index = usize::try_from((exponent - NANO) / 3).ok();
        match index.and_then(|index| DECIMAL_SUFFIXES.get(index)) {
            _ if exponent == 0 => Ok(()),
            Some(suffix) if self.format != Format::Exponent => f.write_str(suffix),
            // There is no suffix past `E`. Upstream prints none then, and so another amount.
            _ => write!(f, "e{exponent}"),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        Quantity::parse(text)
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        signs.then_with(|| match self.is_negative() {
            true => other.magnitude_cmp(self),
            false => self.magnitude_cmp(other),
        })
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

/// The text of a quantity, cut apart.
struct Parts<'t> {
    negative: bool,
    /// Without leading zeros.
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

impl<'t> Parts<'t> {
    fn split(text: &'t str) -> Result<Parts<'t>, QuantityError> {
        if text.is_empty() || text.len() > QUANTITY_LEN_MAX {
            return Err(QuantityError::Format);
        }
        let digits = |text: &'t str| text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
        let (whole, rest) = digits(text.strip_prefix(['+', '-']).unwrap_or(text));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let after_letters = suffix.trim_start_matches(|character| "eEinumkKMGTP".contains(character));
        let exponent = after_letters.strip_prefix(['+', '-']).unwrap_or(after_letters);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Parts { negative: text.starts_with('-'), whole: whole.trim_start_matches('0'), fraction, suffix })
    }

    fn digits_len(&self) -> usize {
        self.whole.len().max(1) + self.fraction.len()
    }

    fn signed(&self, magnitude: i128) -> i128 {
        if self.negative { -magnitude } else { magnitude }
    }

    fn decimal(&self, format: Format, exponent: i32) -> Result<Quantity, QuantityError> {
        let digits = [self.whole, self.fraction].concat();
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        if significant.is_empty() {
            return Ok(Quantity::new(0, 0, format));
        }
        let trailing = digits.len() - digits.trim_end_matches('0').len();
        let scale = exponent - len(self.fraction.len()) + len(trailing);
        if i64::from(scale) > EXPONENT_MAX {
            return Err(QuantityError::Suffix);
        }
        let too_fine = usize::try_from(NANO - scale).unwrap_or(0);
        if too_fine == 0 {
            let mantissa = significant.parse().map_err(|_| QuantityError::Number)?;
            return Ok(Quantity::new(self.signed(mantissa), scale, format));
        }
        // The dropped digits end in one that is not zero.
        let kept = significant.get(..significant.len().saturating_sub(too_fine)).unwrap_or_default();
        let mantissa =
            if kept.is_empty() { 0 } else { kept.parse::<i128>().map_err(|_| QuantityError::Number)? };
        let mantissa = mantissa.checked_add(1).ok_or(QuantityError::Number)?;
        Ok(Quantity::new(self.signed(mantissa), NANO, format))
    }

    /// At most `i64::MAX` in magnitude, as upstream caps binary quantities.
    fn binary(&self, exponent: i32) -> Result<Quantity, QuantityError> {
        let cap = i128::from(i64::MAX);
        if self.whole.len() > FAST_DIGITS_MAX {
            return Ok(Quantity::new(self.signed(cap), 0, Format::Binary));
        }
        // 18 digits times 2^60 fit; the digits of a longer fraction weigh less than a nano unless the suffix is large.
        let fraction_len = self.fraction.len().min(FAST_DIGITS_MAX - self.whole.len());
        let (fraction, dropped) = self.fraction.split_at(fraction_len);
        let digits = [self.whole, fraction].concat();
        let mut magnitude: i128 =
            if digits.is_empty() { 0 } else { digits.parse().map_err(|_| QuantityError::Number)? };
        if dropped.bytes().any(|digit| digit != b'0') {
            magnitude += 1;
        }
        let mut scale = -len(fraction_len);
        magnitude <<= exponent;
        if scale < NANO {
            magnitude = divide_away_from_zero(magnitude, 10_i128.pow((NANO - scale).unsigned_abs()));
            scale = NANO;
        }
        let one = 10_i128.pow(scale.unsigned_abs());
        if magnitude > cap * one {
            return Ok(Quantity::new(self.signed(cap), 0, Format::Binary));
        }
        let format = if magnitude < one { Format::Decimal } else { Format::Binary };
        Ok(Quantity::new(self.signed(magnitude), scale, format))
    }

    /// Whether upstream keeps the text as it is instead of printing the amount again.
    fn is_canonical(&self, format: Format, exponent: i32) -> bool {
        if self.whole.is_empty() {
            return false;
        }
        if format == Format::Binary {
            let digits_max = 14 - exponent * 3 / 10;
            let odd = self.whole.parse::<i64>().is_ok_and(|value| value & 7 != 0);
            return self.fraction.is_empty() && len(self.whole.len()) <= digits_max && odd;
        }
        let scale = exponent - len(self.fraction.len());
        let thousands = match self.fraction.len() {
            0 => self.whole.ends_with("000"),
            _ => [self.whole, self.fraction].concat().ends_with("000"),
        };
        self.digits_len() <= FAST_DIGITS_MAX && scale >= NANO && scale % 3 == 0 && !thousands
    }
}

fn len(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

fn divide_away_from_zero(number: i128, by: i128) -> i128 {
    number / by + if number % by == 0 { 0 } else { number.signum() }
}

/// The format and the power of ten, or of two for binary suffixes.
fn suffix(text: &str) -> Result<(Format, i32), QuantityError> {
    if let Some(index) = DECIMAL_SUFFIXES.iter().position(|suffix| *suffix == text) {
        return Ok((Format::Decimal, NANO + 3 * len(index)));
    }
    if let Some(index) = BINARY_SUFFIXES.iter().position(|suffix| *suffix == text) {
        return Ok((Format::Binary, 10 * len(index)));
    }
    let exponent = text.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse::<i64>().ok());
    let exponent = exponent
        .filter(|exponent| (-EXPONENT_MAX..=EXPONENT_MAX).contains(exponent))
        .ok_or(QuantityError::Suffix)?;
    Ok((Format::Exponent, i32::try_from(exponent).map_err(|_| QuantityError::Suffix)?))
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
