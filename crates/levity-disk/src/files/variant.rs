//! Precompressed variants: files that may be sent in place of another.

use std::borrow::Borrow;
use std::io;

use rustix::io::Errno;

use super::meta::Meta;
use super::open_file::OpenFile;

/// What came of opening a variant of `original`, if it may stand in for it. One that is absent or may not
/// be opened is none.
///
/// # Errors
/// Those that say nothing of the variant: the disk fails, or the process has too many files open.
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

/// Whether an error means that nothing can be read under a name, now and at the next try: it is absent,
/// or may not be opened. Others pass: of a disk that fails, or of a process that has too many files open.
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
