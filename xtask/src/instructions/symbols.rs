//! Which function an address of a process belongs to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use addr2line::Loader;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

use super::clock::VDSO;
use crate::files;
use crate::run::Result;

/// Where the sources of the standard library were built. What they inline counts for the caller.
const STANDARD_LIBRARY: &str = "/rustc/";

/// A section with the names of the compilers, each with a zero byte behind it.
const COMMENT: &str = ".comment";
const COMPILER: &str = "rustc version ";

/// What is mapped into a process.
pub struct Symbols {
    parts: Vec<Part>,
}

/// A program or library.
struct Part {
    name: String,
    /// Where it is in memory, and how far from the addresses of its file.
    range: Range<u64>,
    shift: u64,
    symbols: BTreeMap<u64, Symbol>,
    /// `None` if it has no lines.
    lines: Option<Loader>,
}

struct Symbol {
    name: String,
    /// 0 if it is not known.
    bytes: u64,
}

impl Symbols {
    /// Of a process. With `lines`, also those of functions that are inlined.
    ///
    /// # Errors
    /// A file that is mapped cannot be read.
    pub fn read(process: i32, lines: bool) -> Result<Self> {
        let maps = files::read(Path::new(&format!("/proc/{process}/maps")))?;
        let parts = mapped(&maps).into_iter().map(|(name, range)| {
            let bytes = match name {
                VDSO => memory(process, &range)?,
                _ => fs::read(name).map_err(|error| format!("{name}: {error}"))?,
            };
            Part::new(name, range, &bytes, lines)
        });
        let parts = parts.collect::<Result<_>>()?;
        Ok(Self { parts })
    }

    /// The name of the function, and that of the library if it is none of the program.
    pub fn function(&self, address: u64) -> String {
        let part = self
            .parts
            .iter()
            .position(|part| part.range.contains(&address));
        match part {
            None => "(code of no file)".to_owned(),
            Some(0) => self.parts[0].function(address),
            Some(part) => {
                let part = &self.parts[part];
                format!("{}: {}", part.short_name(), part.function(address))
            }
        }
    }

    /// Where a part has a function with that name.
    pub fn address(&self, part: &str, name: &str) -> Option<u64> {
        let part = self.parts.iter().find(|one| one.name == part)?;
        let mut symbols = part.symbols.iter();
        let (address, _) = symbols.find(|(_, symbol)| symbol.name == name)?;
        Some(address.wrapping_add(part.shift))
    }
}

impl Part {
    fn new(name: &str, range: Range<u64>, bytes: &[u8], lines: bool) -> Result<Self> {
        let failed = |error| format!("{name}: {error}");
        let file = object::File::parse(bytes).map_err(failed)?;
        let first = file.segments().map(|segment| segment.address()).min();
        let lines = match lines && name != VDSO {
            true => Some(Loader::new(name).map_err(|error| format!("{name}: {error}"))?),
            false => None,
        };
        Ok(Self {
            name: name.to_owned(),
            // The first segment of a file begins at a page.
            shift: range.start.wrapping_sub(first.unwrap_or(0)),
            range,
            symbols: symbols(&file),
            lines,
        })
    }

    fn short_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    fn function(&self, address: u64) -> String {
        let address = address.wrapping_sub(self.shift);
        let inlined = self
            .lines
            .as_ref()
            .and_then(|lines| inlined(lines, address));
        inlined.unwrap_or_else(|| self.symbol(address).to_owned())
    }

    fn symbol(&self, address: u64) -> &str {
        let before = self.symbols.range(..=address).next_back();
        match before {
            Some((start, symbol)) if symbol.bytes == 0 || address - start < symbol.bytes => {
                &symbol.name
            }
            _ => "(no symbol)",
        }
    }
}

/// The first frame that is none of the standard library, the innermost first: its file, without folders that say nothing, and its function.
fn inlined(lines: &Loader, address: u64) -> Option<String> {
    let mut frames = lines.find_frames(address).ok()?;
    while let Ok(Some(frame)) = frames.next() {
        let file = frame.location.as_ref().and_then(|location| location.file);
        let own = file.filter(|file| !file.starts_with(STANDARD_LIBRARY));
        if let (Some(file), Some(name)) = (own, &frame.function) {
            let name = name.demangle().ok()?;
            return Some(format!("{}: {name}", short(file)));
        }
    }
    None
}

/// A path from the folder of the crate on.
fn short(path: &str) -> &str {
    let Some(sources) = path.find("/src/") else {
        return path;
    };
    let start = path[..sources].rfind('/').map_or(0, |slash| slash + 1);
    &path[start..]
}

/// The functions of a file by their address, without what the compiler adds to names.
fn symbols(file: &object::File<'_>) -> BTreeMap<u64, Symbol> {
    let functions = file.symbols().chain(file.dynamic_symbols());
    // An assembler gives a function no kind unless it is told one.
    let functions = functions.filter(|symbol| {
        symbol.is_definition()
            && matches!(
                symbol.kind(),
                SymbolKind::Text | SymbolKind::Unknown | SymbolKind::Label
            )
    });
    let mut found = BTreeMap::new();
    for symbol in functions {
        let name = symbol.name().unwrap_or_default();
        let named = Symbol {
            name: format!("{:#}", rustc_demangle::demangle(name)),
            bytes: symbol.size(),
        };
        // Of several names the first one stays that has a length.
        let known = found.entry(symbol.address()).or_insert(named);
        if known.bytes == 0 && symbol.size() > 0 {
            known.name = format!("{:#}", rustc_demangle::demangle(name));
            known.bytes = symbol.size();
        }
    }
    found
}

/// The files with code in `/proc/PID/maps`, from the first to the last byte of each. The program is below its libraries, so it is the first.
fn mapped(maps: &str) -> Vec<(&str, Range<u64>)> {
    let mut files: Vec<(&str, Range<u64>, bool)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (
            words.next().and_then(range),
            words.next().unwrap_or_default(),
        );
        let (Some(range), Some(name)) = (range, words.nth(3)) else {
            continue;
        };
        let is_code = rights.contains('x');
        match files.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, known, has_code)) => {
                known.end = range.end;
                *has_code |= is_code;
            }
            None => files.push((name, range, is_code)),
        }
    }
    let code = files
        .into_iter()
        .filter(|(name, _, has_code)| *has_code && (*name == VDSO || name.starts_with('/')));
    code.map(|(name, range, _)| (name, range)).collect()
}

fn range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

fn memory(process: i32, range: &Range<u64>) -> Result<Vec<u8>> {
    let path = format!("/proc/{process}/mem");
    let failed = |error| format!("{path}: {error}");
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let file = File::open(&path).map_err(failed)?;
    file.read_exact_at(&mut bytes, range.start)
        .map_err(failed)?;
    Ok(bytes)
}

/// The version of the compiler that has built a program, as it says itself.
///
/// # Errors
/// It was not built by rustc, or has no symbols.
pub fn compiler(binary: &Path) -> Result<String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", binary.display());
    let bytes = fs::read(binary).map_err(|error| failed(&error))?;
    let file = object::File::parse(&*bytes).map_err(|error| failed(&error))?;
    if file.symbols().next().is_none() {
        return Err(failed(&"the program has no symbols"));
    }
    let section = file.section_by_name(COMMENT);
    let comments = section.and_then(|section| section.data().ok());
    let mut comments = comments.unwrap_or_default().split(|byte| *byte == 0);
    let version = comments.find_map(|comment| str::from_utf8(comment).ok()?.strip_prefix(COMPILER));
    version
        .map(str::to_owned)
        .ok_or_else(|| failed(&"the program does not say which rustc has built it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_code_are_mapped() {
        let maps = "\
            1000-2000 r--p 00000000 fe:00 11 /a/program\n\
            2000-4000 r-xp 00001000 fe:00 11 /a/program\n\
            4000-5000 rw-p 00000000 00:00 0\n\
            5000-6000 rw-p 00000000 00:00 0 [heap]\n\
            6000-7000 r--p 00000000 fe:00 12 /usr/share/data\n\
            8000-9000 r-xp 00000000 00:00 0 [vdso]\n";
        let expected = [("/a/program", 0x1000..0x4000), (VDSO, 0x8000..0x9000)];
        assert_eq!(mapped(maps), expected);
    }

    #[test]
    fn own_functions_are_found() {
        let symbols = Symbols::read(std::process::id() as i32, false).unwrap();
        let address = files::read as fn(&Path) -> Result<String> as usize as u64;
        assert_eq!(symbols.function(address), "xtask::files::read");
        assert_eq!(symbols.function(address + 1), "xtask::files::read");
        assert_eq!(symbols.function(1), "(code of no file)");
        assert_eq!(symbols.address("no such part", "read"), None);
    }

    #[test]
    fn what_is_inlined_has_a_file() {
        let symbols = Symbols::read(std::process::id() as i32, true).unwrap();
        let address = files::read as fn(&Path) -> Result<String> as usize as u64;
        let name = symbols.function(address);
        assert!(name.starts_with("xtask/src/files.rs: "), "{name}");
    }

    #[test]
    fn paths_begin_with_the_crate() {
        assert_eq!(
            short("/a/crates/levity/src/http/h1.rs"),
            "levity/src/http/h1.rs"
        );
        assert_eq!(short("crates/levity/src/main.rs"), "levity/src/main.rs");
        assert_eq!(short("bytes-1/src/bytes.rs"), "bytes-1/src/bytes.rs");
        assert_eq!(short("a.c"), "a.c");
    }

    #[test]
    fn a_program_says_which_compiler_has_built_it() {
        let version = compiler(&std::env::current_exe().unwrap()).unwrap();
        assert!(version.starts_with("1."), "{version}");
        let error = compiler(Path::new("/dev/null")).unwrap_err();
        assert!(error.starts_with("/dev/null: "), "{error}");
    }
}
