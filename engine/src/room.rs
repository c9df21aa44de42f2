//! Memory for what a file holds. How much comes from outside, so that there may not be as much: that is an error, as of any other
//! call to the system, and must not end the process.

use std::collections::TryReserveError;
use std::io;

/// `len` zeros.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`].
pub fn zeroed(len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|e| refused(len, &e))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Makes `bytes` as long as `len`; what is new is zeros.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`]; nothing has changed then.
pub fn resize(bytes: &mut Vec<u8>, len: usize) -> io::Result<()> {
    bytes.try_reserve(len.saturating_sub(bytes.len())).map_err(|e| refused(len, &e))?;
    bytes.resize(len, 0);
    Ok(())
}

fn refused(len: usize, cause: &TryReserveError) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, format!("{len} bytes: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_can_be_is_refused_and_changes_nothing() {
        let mut bytes = zeroed(3).unwrap();
        let error = resize(&mut bytes, usize::MAX).unwrap_err();
        assert_eq!((error.kind(), &bytes[..]), (io::ErrorKind::OutOfMemory, &[0; 3][..]));
        assert!(error.to_string().contains(&usize::MAX.to_string()), "{error}");
        resize(&mut bytes, 5).unwrap();
        assert_eq!(bytes, [0; 5]);
    }
}
