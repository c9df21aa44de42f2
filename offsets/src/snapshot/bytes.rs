//! Numbers and names in bytes, the lowest byte first.

/// What is left to be read. `None` where there is not enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    pub(super) fn flag(&mut self) -> Option<bool> {
        self.u8().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// As many bytes as a number before them says.
    pub(super) fn sized(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.sized()?).ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Adds `bytes` with their length before them.
pub(super) fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    // invariant: names, texts, keys and values come from records, which have lengths of 31 bits.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Adds an id that may be missing.
pub(super) fn put_id(out: &mut Vec<u8>, id: Option<[u8; 16]>) {
    out.push(id.is_some().into());
    out.extend_from_slice(&id.unwrap_or_default());
}
