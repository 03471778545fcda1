//! Turns copied stacks into functions, files and lines.

use std::{collections::BTreeMap, fmt::Write as _, fs, ops::Range, path::PathBuf};

use addr2line::Loader;
use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _,
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};

use super::arena::Copied;

/// A stack has at most so many frames in a report.
const FRAMES_MAX: usize = 64;

/// A file that is mapped to be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapped {
    range: Range<u64>,
    offset: u64,
    path: PathBuf,
}

/// The code of a process.
pub(super) struct Symbols {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    /// What is mapped, readable or not.
    code: Vec<Mapped>,
    /// Where each file is, and by how much its addresses are moved.
    modules: Vec<(Mapped, u64)>,
    loaders: BTreeMap<PathBuf, Option<Loader>>,
}

impl Symbols {
    /// Those of a process that has these mappings. What is `known` already is kept, unless its code is mapped otherwise by now.
    pub(super) fn of(maps: &str, known: Option<Self>) -> Self {
        let code: Vec<Mapped> = maps.lines().filter_map(mapped).collect();
        if known.as_ref().is_some_and(|known| known.code == code)
            && let Some(known) = known
        {
            return known;
        }
        let (mut unwinder, mut modules) = (UnwinderX86_64::new(), Vec::new());
        for mapped in &code {
            if let Some((module, moved)) = module(mapped) {
                unwinder.add_module(module);
                modules.push((mapped.clone(), moved));
            }
        }
        // A file says the same wherever it is mapped.
        let loaders = known.map(|known| known.loaders).unwrap_or_default();
        let cache = CacheX86_64::new();
        Self { unwinder, cache, code, modules, loaders }
    }

    /// A stack as text, one line per function, the innermost first.
    pub(super) fn stack(&mut self, copied: &Copied) -> String {
        let registers = copied.registers;
        let top = registers.stack;
        let mut read = |address: u64| {
            let at = address.checked_sub(top).ok_or(())? as usize;
            let bytes = copied.stack.get(at..at + 8).and_then(|it| it.try_into().ok()).ok_or(())?;
            Ok(u64::from_ne_bytes(bytes))
        };
        let start = UnwindRegsX86_64::new(registers.instruction, top, registers.frame);
        let mut frames =
            self.unwinder.iter_frames(registers.instruction, start, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(match frame {
                FrameAddress::InstructionPointer(at) => at,
                // The call is before where it returns to.
                FrameAddress::ReturnAddress(at) => at.get() - 1,
            });
            if addresses.len() == FRAMES_MAX {
                break;
            }
        }
        let mut text = String::new();
        for address in addresses {
            self.describe(address, &mut text);
        }
        text
    }

    fn describe(&mut self, address: u64, text: &mut String) {
        let Some((mapped, moved)) =
            self.modules.iter().find(|(mapped, _)| mapped.range.contains(&address))
        else {
            let _written = writeln!(text, "    {address:#x}");
            return;
        };
        let (own, path) = (address.wrapping_sub(*moved), mapped.path.clone());
        let loader = self.loaders.entry(path.clone()).or_insert_with(|| Loader::new(&path).ok());
        if !loader.as_ref().is_some_and(|loader| functions(loader, own, text)) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let _written = writeln!(text, "    {file}+{own:#x}");
        }
    }
}

/// The functions at an address, those that were put into others first; says whether any is known. Programs with lines but
/// without further debugging data name only the former; the outermost is in the table of symbols.
fn functions(loader: &Loader, address: u64, text: &mut String) -> bool {
    let symbol = loader.find_symbol(address);
    let symbol = symbol.map(|name| addr2line::demangle_auto(name.into(), None).into_owned());
    let mut said = false;
    let Ok(mut frames) = loader.find_frames(address) else { return false };
    while let Ok(Some(frame)) = frames.next() {
        let own = frame.function.and_then(|function| Some(function.demangle().ok()?.into_owned()));
        let Some(name) = own.or_else(|| symbol.clone()) else { continue };
        let place = frame.location.and_then(|it| Some(format!(" at {}:{}", it.file?, it.line?)));
        let _written = writeln!(text, "    {name}{}", place.unwrap_or_default());
        said = true;
    }
    if let Some(name) = symbol.filter(|_| !said) {
        let _written = writeln!(text, "    {name}");
        said = true;
    }
    said
}

/// Reads a line of `/proc/PID/maps`, if it is of a file's code.
fn mapped(line: &str) -> Option<Mapped> {
    let mut words = line.splitn(6, ' ');
    let (addresses, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2)?.trim();
    let (from, to) = addresses.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let is_code = rights.contains('x') && path.starts_with('/');
    is_code.then_some(())?;
    Some(Mapped { range: number(from)?..number(to)?, offset: number(offset)?, path: path.into() })
}

/// The unwinding tables of a mapped file, and by how much its addresses are moved.
fn module(mapped: &Mapped) -> Option<(Module<Vec<u8>>, u64)> {
    let bytes = fs::read(&mapped.path).ok()?;
    let file = object::File::parse(bytes.as_slice()).ok()?;
    // Segments are mapped by whole pages.
    let segment = file.segments().find(|it| it.file_range().0 & !0xFFF == mapped.offset)?;
    let (from, _) = segment.file_range();
    let stated = segment.address().wrapping_add(mapped.offset).wrapping_sub(from);
    let moved = mapped.range.start.wrapping_sub(stated);
    let range = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let data =
        |name: &str| Some(file.section_by_name(name)?.uncompressed_data().ok()?.into_owned());
    let sections = ExplicitModuleSectionInfo {
        text_svma: range(".text"),
        text: data(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..ExplicitModuleSectionInfo::default()
    };
    let name = mapped.path.to_string_lossy().into_owned();
    Some((Module::new(name, mapped.range.clone(), moved, sections), moved))
}
