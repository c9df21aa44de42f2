//! Times and durations as they are written on a command line.

const MS_A_DAY: i64 = 86_400_000;
const MS_AN_HOUR: i64 = 3_600_000;
const MS_A_MINUTE: i64 = 60_000;

/// Ms since 1970 of `YYYY-MM-DDTHH:mm:SS`, with a fraction of the second or without, and after it nothing or `Z` for
/// UTC, or an offset as `+hh:mm`, `-hhmm` or `+hh`.
pub(crate) fn parse_datetime(text: &str) -> Result<i64, String> {
    const FORM: &str = "must be a time such as 2026-11-30T12:00:00.000, with Z or an offset such as +02:00 after it if it is not UTC";
    let parse = || {
        let (date, rest) = text.split_once(['T', 't'])?;
        let (time, zone_ms) = split_zone(rest)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let (time, fraction_ms) = match time.split_once('.') {
            Some((time, digits)) => (time, fraction_ms(digits)?),
            None => (time, 0),
        };
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let is_time = hour < 24 && minute < 60 && second < 60;
        let is_date = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        let ms = days_before(year, month, day) * MS_A_DAY + hour * MS_AN_HOUR + minute * MS_A_MINUTE + second * 1000 + fraction_ms;
        (is_time && is_date).then_some(ms - zone_ms)
    };
    parse().ok_or_else(|| FORM.to_owned())
}

/// Ms of `PnDTnHnMnS`, each part optional, one at least; seconds may have a fraction.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    const FORM: &str = "must be a duration such as P1D, PT6H or P1DT2H30M15.5S";
    let parse = || {
        let upper = text.to_ascii_uppercase();
        let rest = upper.strip_prefix('P')?;
        let (days, time) = match rest.split_once('T') {
            Some((_, "")) => return None,
            Some((days, time)) => (days, time),
            None => (rest, ""),
        };
        if days.is_empty() && time.is_empty() {
            return None;
        }
        let days_ms = if days.is_empty() { 0 } else { whole(days.strip_suffix('D')?)?.checked_mul(MS_A_DAY)? };
        let (hours, rest) = split_unit(time, 'H');
        let (minutes, rest) = split_unit(rest, 'M');
        let (seconds, rest) = split_unit(rest, 'S');
        let seconds_ms = match seconds {
            None => 0,
            Some(seconds) => {
                let (seconds, fraction) = seconds.split_once('.').map_or((seconds, None), |(s, f)| (s, Some(f)));
                whole(seconds)?.checked_mul(1000)?.checked_add(fraction.map_or(Some(0), fraction_ms)?)?
            }
        };
        let of = |number: Option<&str>, unit_ms: i64| number.map_or(Some(0), |number| whole(number)?.checked_mul(unit_ms));
        let parts = [days_ms, of(hours, MS_AN_HOUR)?, of(minutes, MS_A_MINUTE)?, seconds_ms];
        let sum = parts.into_iter().try_fold(0i64, i64::checked_add)?;
        rest.is_empty().then_some(sum)
    };
    parse().ok_or_else(|| FORM.to_owned())
}

fn split_unit(text: &str, unit: char) -> (Option<&str>, &str) {
    text.split_once(unit).map_or((None, text), |(number, rest)| (Some(number), rest))
}

/// The time of day, and the ms that its zone is ahead of UTC.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let (time, zone) = text.split_at(at);
    let digits = zone[1..].replace(':', "");
    let (hours, minutes) = match digits.len() {
        2 => (whole(&digits)?, 0),
        4 => (whole(&digits[..2])?, whole(&digits[2..])?),
        _ => return None,
    };
    let ahead_ms = hours * MS_AN_HOUR + minutes * MS_A_MINUTE;
    (hours <= 18 && minutes < 60).then_some((time, if zone.starts_with('-') { -ahead_ms } else { ahead_ms }))
}

/// Numbers of exactly so many digits.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(separator);
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *number = whole(part)?;
    }
    parts.next().is_none().then_some(found)
}

fn whole(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The ms of the digits after the point; what is below them is cut off.
fn fraction_ms(digits: &str) -> Option<i64> {
    if !(1..=9).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    whole(&format!("{digits:0<3}")[..3])
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, by counting in eras of 400 years that start in March.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for ms in [0, 1_709_210_096_789, 4_102_444_800_000, 951_782_399_999, 951_868_800_000, 1_795_976_006_546] {
            let shown = output::time(ms).replace(' ', "T");
            assert_eq!(parse_datetime(&shown), Ok(ms), "{shown}");
            assert_eq!(parse_datetime(&format!("{shown}Z")), Ok(ms), "{shown}");
        }
    }

    #[test]
    fn zones_and_fractions() {
        let noon = 1_709_208_000_000;
        for text in ["2024-02-29T12:00:00", "2024-02-29T14:00:00+02:00", "2024-02-29T06:30:00.0-0530", "2024-02-29t13:00:00+01"] {
            assert_eq!(parse_datetime(text), Ok(noon), "{text}");
        }
        assert_eq!(parse_datetime("2024-02-29T12:00:00.5"), Ok(noon + 500));
        assert_eq!(parse_datetime("2024-02-29T12:00:00.123456789Z"), Ok(noon + 123));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2024-02-29",
            "2023-02-29T12:00:00",
            "2024-13-01T12:00:00",
            "2024-00-01T12:00:00",
            "2024-01-32T12:00:00",
            "2024-01-01T24:00:00",
            "2024-01-01T12:60:00",
            "2024-1-01T12:00:00",
            "2024-01-01T12:00",
            "2024-01-01T12:00:00.",
            "2024-01-01T12:00:00.x",
            "2024-01-01T12:00:00+2",
            "2024-01-01T12:00:00+19:00",
            "2024-01-01T+1:00:00",
            "1700000000000",
        ] {
            assert!(parse_datetime(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_sums_of_their_parts() {
        for (text, ms) in [
            ("P1D", MS_A_DAY),
            ("PT6H", 6 * MS_AN_HOUR),
            ("P1DT2H30M15.5S", MS_A_DAY + 2 * MS_AN_HOUR + 30 * MS_A_MINUTE + 15_500),
            ("pt0.001s", 1),
            ("PT90M", 90 * MS_A_MINUTE),
            ("P0D", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "P1",
            "P1H",
            "PT1D",
            "PT1M1H",
            "P1DT",
            "PT-1H",
            "P1Y",
            "PT1.5H",
            "P99999999999999999999D",
            "P9223372036854775807D",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
