//! An encoder of Brotli (RFC 7932), also for content that refers to a dictionary (RFC 9842, 4): the reference library
//! behind a safe type. It computes, so never run it on an event loop.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use compu_brotli_sys as sys;

use self::memory::{Used, allocate, release};

mod memory;

/// The largest dictionary in bytes. The library keeps positions in 31 bits, and does not look.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 30;

/// How an encoder compresses. The library limits each value to its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The level, 0 to 11.
    pub level: u8,
    /// The binary logarithm of the window in bytes, 10 to 24.
    pub window_log: u8,
    /// The binary logarithm of the blocks in bytes, 16 to 24, each of which is compressed at once; `None` leaves the
    /// choice to the library.
    pub block_log: Option<u8>,
    /// The length of the content in bytes, which selects tables; `None` if it is unknown. Content of another length is
    /// compressed all the same.
    pub length: Option<u64>,
}

/// What an encoder does with its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Consume it.
    Process,
    /// Then append all that a decoder needs to decode the content so far.
    Flush,
    /// Then end the content.
    Finish,
}

/// An encoder with its state.
pub struct Encoder {
    state: NonNull<sys::BrotliEncoderState>,
    // Fields are dropped in this order, after the state: it refers to the dictionary, and both count their memory.
    _dictionary: Option<Dictionary>,
    used: Arc<Used>,
}

// SAFETY: the library keeps nothing in the thread, and the state refers only to memory that the encoder owns.
unsafe impl Send for Encoder {}

impl Encoder {
    /// An encoder at the start of the content.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let used = Arc::new(Used::default());
        // SAFETY: the functions allocate and release as the library demands, and what they are passed lives longer than
        // the state, because `used` is dropped after it.
        let state = unsafe {
            sys::BrotliEncoderCreateInstance(Some(allocate), Some(release), opaque(&used))
        };
        let encoder = Self {
            state: NonNull::new(state).ok_or(io::ErrorKind::OutOfMemory)?,
            _dictionary: None,
            used,
        };
        encoder.set(settings);
        Ok(encoder)
    }

    /// The same, for content that may refer to `dictionary`.
    ///
    /// # Errors
    /// When there is no memory, or the dictionary is larger than [`DICTIONARY_BYTES_MAX`].
    pub fn with_dictionary(settings: Settings, dictionary: Vec<u8>) -> io::Result<Self> {
        if dictionary.len() > DICTIONARY_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut encoder = Self::new(settings)?;
        let dictionary = Dictionary::new(dictionary, settings.level, &encoder.used)?;
        // SAFETY: both pointers are valid, and the dictionary lives longer than the state, by the order of the fields.
        let attached = unsafe {
            sys::BrotliEncoderAttachPreparedDictionary(
                encoder.state.as_ptr(),
                dictionary.prepared.as_ptr(),
            )
        };
        encoder._dictionary = Some(dictionary);
        match attached {
            0 => Err(io::ErrorKind::InvalidInput.into()),
            _ => Ok(encoder),
        }
    }

    fn set(&self, settings: Settings) {
        let length = settings.length.unwrap_or(0);
        let parameters = [
            (
                sys::BrotliEncoderParameter_BROTLI_PARAM_QUALITY,
                settings.level.into(),
            ),
            (
                sys::BrotliEncoderParameter_BROTLI_PARAM_LGWIN,
                settings.window_log.into(),
            ),
            // 0 leaves the choice to the library.
            (
                sys::BrotliEncoderParameter_BROTLI_PARAM_LGBLOCK,
                settings.block_log.unwrap_or(0).into(),
            ),
            (
                sys::BrotliEncoderParameter_BROTLI_PARAM_SIZE_HINT,
                u32::try_from(length).unwrap_or(u32::MAX),
            ),
        ];
        for (parameter, value) in parameters {
            // SAFETY: the state is valid. A parameter is refused only when the encoder has begun.
            unsafe { sys::BrotliEncoderSetParameter(self.state.as_ptr(), parameter, value) };
        }
    }

    /// Consumes `input`, performs `operation`, and appends what is ready to `out`.
    ///
    /// # Errors
    /// When there is no memory, or when the content has ended already.
    pub fn append(
        &mut self,
        input: &[u8],
        operation: Operation,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let operation = match operation {
            Operation::Process => sys::BrotliEncoderOperation_BROTLI_OPERATION_PROCESS,
            Operation::Flush => sys::BrotliEncoderOperation_BROTLI_OPERATION_FLUSH,
            Operation::Finish => sys::BrotliEncoderOperation_BROTLI_OPERATION_FINISH,
        };
        let (mut left, mut next) = (input.len(), input.as_ptr());
        loop {
            // SAFETY: the state is valid, and the library reads at most `left` bytes from `next`, which it moves within
            // `input`. Without room for output it writes none.
            let went_well = unsafe {
                sys::BrotliEncoderCompressStream(
                    self.state.as_ptr(),
                    operation,
                    &mut left,
                    &mut next,
                    &mut 0,
                    &mut ptr::null_mut(),
                    ptr::null_mut(),
                )
            };
            if went_well == 0 {
                return Err(io::Error::other("the encoder of br failed"));
            }
            // A call that leaves output does not go on behind it: only one that leaves none has done all.
            let is_done = !self.take(out);
            if left == 0 && is_done {
                return Ok(());
            }
        }
    }

    /// Appends all output that is ready, and returns whether there was any.
    fn take(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        loop {
            // 0 asks for all that lies together.
            let mut bytes = 0;
            // SAFETY: the state is valid. What is returned has `bytes` bytes, which stay until the state is used again.
            unsafe {
                let ready = sys::BrotliEncoderTakeOutput(self.state.as_ptr(), &mut bytes);
                if bytes == 0 {
                    return out.len() > before;
                }
                out.extend_from_slice(slice::from_raw_parts(ready, bytes));
            }
        }
    }

    /// The most memory that the encoder has used at once, in bytes.
    pub fn memory_bytes_max(&self) -> usize {
        self.used.max()
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the state is valid, and nobody uses it afterwards.
        unsafe { sys::BrotliEncoderDestroyInstance(self.state.as_ptr()) };
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

/// A dictionary as the library searches it.
struct Dictionary {
    prepared: NonNull<sys::BrotliEncoderPreparedDictionary>,
    // The library refers to the content, and counts its memory.
    _content: Vec<u8>,
    _used: Arc<Used>,
}

impl Dictionary {
    fn new(content: Vec<u8>, level: u8, used: &Arc<Used>) -> io::Result<Self> {
        // SAFETY: the content stays where it is when the vector moves, and is dropped after what is prepared. For the
        // functions see `Encoder::new`.
        let prepared = unsafe {
            sys::BrotliEncoderPrepareDictionary(
                sys::BrotliSharedDictionaryType_BROTLI_SHARED_DICTIONARY_RAW,
                content.len(),
                content.as_ptr(),
                c_int::from(level),
                Some(allocate),
                Some(release),
                opaque(used),
            )
        };
        Ok(Self {
            prepared: NonNull::new(prepared).ok_or(io::ErrorKind::OutOfMemory)?,
            _content: content,
            _used: Arc::clone(used),
        })
    }
}

impl Drop for Dictionary {
    fn drop(&mut self) {
        // SAFETY: it is valid, and the encoder that uses it has been dropped.
        unsafe { sys::BrotliEncoderDestroyPreparedDictionary(self.prepared.as_ptr()) };
    }
}

fn opaque(used: &Arc<Used>) -> *mut c_void {
    Arc::as_ptr(used).cast_mut().cast()
}

#[cfg(test)]
mod tests;
