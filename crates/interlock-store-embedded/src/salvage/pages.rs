//! The pages of a damaged ledger, as the last commit that can be read left them: the file, and over it what its log holds.
//!
//! SQLite itself refuses a file whose header is gone, and its log with it. Here a page is a page: the size is the
//! header's, else the log's, else SQLite's default. Of the log what counts is what SQLite would count: frames in order, by
//! their checksums, up to the last commit.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt as _, path::Path};

const MAGIC: &[u8] = b"SQLite format 3\0";
const DEFAULT_SIZE: usize = 4096;
const WAL_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// How the log was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    /// There is none, or it ends as logs end.
    Whole,
    /// Its last frame is not whole: a process or the machine died while it was written, or it was damaged there.
    Torn,
    /// It is damaged before its end: commits after that are lost.
    Cut,
}

/// Pages by their numbers, from 1.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    wal: Option<File>,
    /// Where the log has the newest state of a page.
    frames: BTreeMap<u32, u64>,
    size: usize,
    /// The part of a page that holds content.
    pub(super) usable: usize,
    pub(super) count: u32,
    pub(super) log: Log,
}

impl Pages {
    /// Opens a file and its log.
    pub(super) fn open(path: &Path, wal: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let wal = match File::open(wal) {
            Ok(wal) => Some(wal),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut header = [0; 100];
        let has_header = file.read_exact_at(&mut header, 0).is_ok() && header.starts_with(MAGIC);
        let own = has_header.then(|| page_size(u32::from(u16_at(&header, 16)))).flatten();
        let log = wal.as_ref().map(WalReader::open).transpose()?;
        let size = own.or(log.as_ref().and_then(|log| log.size)).unwrap_or(DEFAULT_SIZE);
        let reserved = if own.is_some() { usize::from(header[20]) } else { 0 };
        let mut pages = Self {
            count: u32::try_from(file.metadata()?.len() / size as u64).unwrap_or(u32::MAX),
            file,
            wal: None,
            frames: BTreeMap::new(),
            size,
            usable: size - reserved.min(size / 2),
            log: Log::Whole,
        };
        if let Some(log) = log {
            pages.log = log.read(size, &mut pages)?;
        }
        pages.wal = wal;
        Ok(pages)
    }

    /// A page; nothing if it is not there.
    pub(super) fn get(&self, number: u32) -> Option<Vec<u8>> {
        if number == 0 || number > self.count {
            return None;
        }
        let mut page = vec![0; self.size];
        let read = match (self.frames.get(&number), &self.wal) {
            (Some(at), Some(wal)) => wal.read_exact_at(&mut page, *at),
            _ => self.file.read_exact_at(&mut page, u64::from(number - 1) * self.size as u64),
        };
        read.ok().map(|()| page)
    }
}

/// How the words of a checksum are read: as the machine had them that wrote the log.
type ReadWord = fn([u8; 4]) -> u32;

/// A log as it is read.
struct WalReader<'a> {
    file: &'a File,
    length: u64,
    /// The size of its pages; nothing if its header cannot be used.
    size: Option<usize>,
    salts: [u8; 8],
    read_word: ReadWord,
    sum: (u32, u32),
}

impl<'a> WalReader<'a> {
    fn open(file: &'a File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut header = [0; WAL_HEADER as usize];
        let is_there = file.read_exact_at(&mut header, 0).is_ok();
        let magic = u32_at(&header, 0);
        let read_word: ReadWord =
            if magic & 1 == 1 { u32::from_be_bytes } else { u32::from_le_bytes };
        let sum = checksum((0, 0), &header[..24], read_word);
        let is_whole = is_there
            && magic & !1 == 0x377f_0682
            && sum == (u32_at(&header, 24), u32_at(&header, 28));
        let size = is_whole.then(|| page_size(u32_at(&header, 8))).flatten();
        let mut salts = [0; 8];
        salts.copy_from_slice(&header[16..24]);
        Ok(Self { file, length, size, salts, read_word, sum })
    }

    /// Takes over where the newest state of each page is.
    fn read(mut self, size: usize, pages: &mut Pages) -> io::Result<Log> {
        if self.size != Some(size) {
            return Ok(if self.length == 0 { Log::Whole } else { Log::Cut });
        }
        let mut pending = BTreeMap::new();
        let mut at = WAL_HEADER;
        let mut frame = vec![0; size + FRAME_HEADER as usize];
        while at < self.length {
            let has = usize::try_from(self.length - at).unwrap_or(usize::MAX).min(frame.len());
            self.file.read_exact_at(&mut frame[..has], at)?;
            // Frames of an earlier round stand behind the last of this one. One that was damaged looks like those, unless
            // more of this round come after it.
            if has < 16 || frame[8..16] != self.salts {
                let goes_on = self.goes_on(at + frame.len() as u64);
                return Ok(if goes_on { Log::Cut } else { Log::Whole });
            }
            if has < frame.len() {
                return Ok(Log::Torn);
            }
            let sum = checksum(self.sum, &frame[..8], self.read_word);
            let sum = checksum(sum, &frame[FRAME_HEADER as usize..], self.read_word);
            if sum != (u32_at(&frame, 16), u32_at(&frame, 20)) {
                return Ok(if self.goes_on(at + frame.len() as u64) {
                    Log::Cut
                } else {
                    Log::Torn
                });
            }
            self.sum = sum;
            pending.insert(u32_at(&frame, 0), at + FRAME_HEADER);
            let count = u32_at(&frame, 4);
            if count > 0 {
                pages.frames.append(&mut pending);
                pages.count = count;
            }
            at += frame.len() as u64;
        }
        // What was not committed was acknowledged to nobody.
        Ok(Log::Whole)
    }

    /// Whether a frame of this round stands there.
    fn goes_on(&self, at: u64) -> bool {
        let mut frame = [0; FRAME_HEADER as usize];
        self.file.read_exact_at(&mut frame, at).is_ok() && frame[8..16] == self.salts
    }
}

fn checksum(sum: (u32, u32), bytes: &[u8], read: ReadWord) -> (u32, u32) {
    let word = |bytes: &[u8]| read([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(8).fold(sum, |(one, two), pair| {
        let one = one.wrapping_add(word(&pair[..4])).wrapping_add(two);
        (one, two.wrapping_add(word(&pair[4..])).wrapping_add(one))
    })
}

/// A size that pages may have; 1 stands for 65,536.
fn page_size(stored: u32) -> Option<usize> {
    let size = if stored == 1 { 65_536 } else { stored as usize };
    (size.is_power_of_two() && (512..=65_536).contains(&size)).then_some(size)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |it| u16::from_be_bytes([it[0], it[1]]))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |it| u32::from_be_bytes([it[0], it[1], it[2], it[3]]))
}
