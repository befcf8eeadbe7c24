//! Precompressed variants: files that may be sent in place of another.

use std::borrow::Borrow;
use std::io;

use rustix::io::Errno;

use super::meta::Meta;
use super::open_file::OpenFile;

/// The variant of `original` that was opened, if it may be sent in its place. `None` if it is absent or may
/// not be opened.
///
/// # Errors
/// Errors that do not concern the variant: of the disk, or because too many files are open.
pub fn accept_variant<F: Borrow<OpenFile>>(
    opened: io::Result<F>,
    original: &Meta,
) -> io::Result<Option<F>> {
    match opened {
        Ok(variant) => {
            let fits = variant.borrow().meta.may_stand_in_for(original);
            Ok(fits.then_some(variant))
        }
        Err(error) if is_out_of_reach(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that a name cannot be read, even at the next attempt: it is absent, or may not be
/// opened. Errors of the disk or because of too many open files are transient.
fn is_out_of_reach(error: &io::Error) -> bool {
    const FINAL: &[Errno] = &[
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::NAMETOOLONG,
        Errno::ACCESS,
        Errno::PERM,
        Errno::LOOP,
        Errno::XDEV,
        Errno::NXIO,
        Errno::NODEV,
    ];
    Errno::from_io_error(error).is_some_and(|errno| FINAL.contains(&errno))
}
