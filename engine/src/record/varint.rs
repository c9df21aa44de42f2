//! Kafka's variable-length integers: zigzag, then base-128 groups, lowest first, high bit = more follow.
//!
//! Over-long encodings are accepted as Kafka accepts them, up to 5 bytes (32 bits) and 10 bytes (64 bits); bits
//! that do not fit are dropped.

/// Takes fields off the front of a byte slice. Every method gives `None` where the bytes end or a varint is too
/// long, and what it leaves behind then is of no use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Option<i32> {
        match *self.rest {
            [a, ref rest @ ..] if a < 0x80 => {
                self.rest = rest;
                Some(unzigzag32(u32::from(a)))
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Some(unzigzag32(u32::from(a & 0x7f) | u32::from(b) << 7))
            }
            _ => self.long(5).map(|raw| unzigzag32(raw as u32)),
        }
    }

    #[inline]
    pub(super) fn varlong(&mut self) -> Option<i64> {
        match *self.rest {
            [a, ref rest @ ..] if a < 0x80 => {
                self.rest = rest;
                Some(unzigzag64(u64::from(a)))
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Some(unzigzag64(u64::from(a & 0x7f) | u64::from(b) << 7))
            }
            _ => self.long(10).map(unzigzag64),
        }
    }

    /// Bytes behind a varint length; a negative length is null. `None` where the bytes end.
    #[inline(always)]
    pub(super) fn nullable(&mut self) -> Option<Option<&'a [u8]>> {
        let len = self.varint()?;
        let bytes = self.take(len.max(0).cast_unsigned() as usize)?;
        Some((len >= 0).then_some(bytes))
    }

    #[inline(always)]
    fn long(&mut self, bytes_max: usize) -> Option<u64> {
        let (value, rest) = long_group(self.rest, bytes_max)?;
        self.rest = rest;
        Some(value)
    }
}

/// A varint of any length and what follows it. By values, so that a reader whose varints are short stays in registers.
#[inline(never)]
fn long_group(bytes: &[u8], bytes_max: usize) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(bytes_max).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

#[inline]
fn unzigzag32(raw: u32) -> i32 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

#[inline]
fn unzigzag64(raw: u64) -> i64 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

#[inline]
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Bytes that `value` takes as a varint. The same for both widths: a 32-bit value gives the same groups in either.
#[inline]
pub(super) fn size_of(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends `value` as a varint, the same bytes in either width.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, value: i64) {
    let mut raw = zigzag(value);
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, value);
        out
    }

    #[test]
    fn examples_of_the_format() {
        let examples: [(i32, &[u8]); 9] = [
            (0, &[0x00]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (64, &[0x80, 0x01]),
            (-64, &[0x7f]),
            (-65, &[0x81, 0x01]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (value, bytes) in examples {
            assert_eq!(encoded(value.into()), bytes);
            assert_eq!(Reader::new(bytes).varint(), Some(value));
            assert_eq!(Reader::new(bytes).varlong(), Some(value.into()));
        }
    }

    #[test]
    fn over_long_encodings_parse_up_to_the_limit_of_their_width() {
        assert_eq!(Reader::new(&[0x82, 0x80, 0x80, 0x80, 0x00]).varint(), Some(1));
        assert_eq!(Reader::new(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x00]).varint(), None);
        assert_eq!(Reader::new(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x00]).varlong(), Some(1));
        assert_eq!(Reader::new(&[0x80; 10]).varlong(), None);
        assert_eq!(Reader::new(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).varlong(), Some(1));
        assert_eq!(Reader::new(&[0x80, 0x80]).varint(), None);
        assert_eq!(Reader::new(&[]).varint(), None);
    }

    proptest! {
        #[test]
        fn both_widths_round_trip(value: i64, small: i32, shift in 0..63u32) {
            for value in [value, value >> shift, small.into()] {
                let bytes = encoded(value);
                prop_assert_eq!(bytes.len(), size_of(value));
                let mut reader = Reader::new(&bytes);
                prop_assert_eq!(reader.varlong(), Some(value));
                prop_assert!(reader.rest().is_empty());
                if let Ok(narrow) = i32::try_from(value) {
                    let mut reader = Reader::new(&bytes);
                    prop_assert_eq!(reader.varint(), Some(narrow));
                    prop_assert!(reader.rest().is_empty());
                }
            }
        }
    }
}
