//! Host memory as one card sees it: bus addresses that an IOMMU maps to real memory of this process.
//!
//! Everything that is not mapped is a canary. Mappings keep their offset in a page and are at least
//! a page apart, and an address is never given twice, so a stray access, or one that comes after
//! the memory was taken back, always hits a canary.
//!
//! Writes are checked byte by byte, as their strobes say. A read moves whole 64-byte lines, so the
//! bytes of a line beside a mapping can't be told from those that were meant: they read as
//! [`POISON`], and a line without one mapped byte is an error.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

/// What a card reads beside a mapping, in the same line.
pub const POISON: u8 = 0xA5;

/// Bytes of a line, which is one beat.
pub const LINE: usize = 64;

/// Bytes that are moved at once.
const WORD: usize = 8;

const PAGE: u64 = 4096;
/// Unmapped bytes between two mappings, at least.
const GUARD: u64 = PAGE;
/// First bus address. Above 4 GiB, so that half of an address is never enough.
const FIRST_IOVA: u64 = 0x12_3400_0000;

/// An access outside of what is mapped: the first such byte, and how many follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// Bus address of the byte.
    pub address: u64,
    /// Bytes in a row, within the line.
    pub len_bytes: usize,
}

#[derive(Debug)]
struct Mapping {
    iova: u64,
    len: u64,
    ptr: NonNull<u8>,
}

impl Mapping {
    fn holds(&self, address: u64, len: u64) -> bool {
        address >= self.iova && len <= self.len && address - self.iova <= self.len - len
    }

    /// Returns the byte at a bus address of the mapping.
    fn byte(&self, address: u64) -> &AtomicU8 {
        assert!(self.holds(address, 1));
        // SAFETY: the byte is in the mapping, whose memory is valid, and touched by atomic accesses
        // alone, as long as the mapping exists (contract of `map`), hence as long as `self` is borrowed.
        unsafe { AtomicU8::from_ptr(self.ptr.as_ptr().add((address - self.iova) as usize)) }
    }

    /// Returns the word at a bus address of the mapping that is a multiple of [`WORD`].
    fn word(&self, address: u64) -> &AtomicU64 {
        assert!(address % WORD as u64 == 0 && self.holds(address, WORD as u64));
        // SAFETY: as for `byte`; and since bus addresses keep the pointer's offset in a page, the pointer is aligned as well.
        unsafe { AtomicU64::from_ptr(self.ptr.as_ptr().add((address - self.iova) as usize).cast()) }
    }

    /// Returns the half of a word at a bus address of the mapping that is a multiple of it.
    fn half_word(&self, address: u64) -> &AtomicU32 {
        assert!(address % 4 == 0 && self.holds(address, 4));
        // SAFETY: as for `word`.
        unsafe { AtomicU32::from_ptr(self.ptr.as_ptr().add((address - self.iova) as usize).cast()) }
    }

    /// Writes the strobed bytes of a line, all of which the mapping holds. Each is visible before the next.
    fn write(&self, address: u64, line: &[u8; LINE], strobe: u64) {
        for (number, word) in line.chunks_exact(WORD).enumerate() {
            let at = address + (number * WORD) as u64;
            match strobe >> (number * WORD) & 0xFF {
                0 => {}
                0xFF => self.word(at).store(u64::from_ne_bytes(std::array::from_fn(|byte| word[byte])), Ordering::Release),
                // Numbers of 32 bits are whole too, as hosts write them.
                0x0F => self.half_word(at).store(u32::from_ne_bytes(std::array::from_fn(|byte| word[byte])), Ordering::Release),
                0xF0 => self.half_word(at + 4).store(u32::from_ne_bytes(std::array::from_fn(|byte| word[4 + byte])), Ordering::Release),
                bytes => {
                    for byte in (0..WORD).filter(|byte| bytes >> byte & 1 == 1) {
                        self.byte(at + byte as u64).store(word[byte], Ordering::Release);
                    }
                }
            }
        }
    }
}

/// The bus addresses that one card may use.
#[derive(Debug)]
pub struct Memory {
    /// In the order of their addresses.
    mappings: Vec<Mapping>,
    /// The mapping of the last access: most accesses follow each other.
    last: usize,
    next_iova: u64,
}

// SAFETY: `map` demands that the memory behind the pointers lives until `unmap`, and that whoever
// else touches it does so by atomic accesses, on whatever thread; so do we.
unsafe impl Send for Memory {}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Returns a bus on which nothing is mapped.
    pub fn new() -> Self {
        Self { mappings: Vec::new(), last: 0, next_iova: FIRST_IOVA }
    }

    /// Maps `len` bytes at `ptr` and returns their bus address, which is as aligned as the pointer up to a page.
    ///
    /// # Safety
    /// Until [`Memory::unmap`] the memory must stay valid, and be touched by atomic accesses alone.
    pub unsafe fn map(&mut self, ptr: NonNull<u8>, len: usize, align: usize) -> u64 {
        let align = (align as u64).max(PAGE);
        let iova = self.next_iova.next_multiple_of(align) + (ptr.as_ptr() as u64 & (PAGE - 1));
        self.next_iova = (iova + len as u64).next_multiple_of(PAGE) + GUARD;
        self.mappings.push(Mapping { iova, len: len as u64, ptr });
        iova
    }

    /// Takes the mapping at `iova` back. Returns whether there was one of that length.
    pub fn unmap(&mut self, iova: u64, len: usize) -> bool {
        let found = self.mappings.binary_search_by_key(&iova, |mapping| mapping.iova);
        match found {
            Ok(index) if self.mappings[index].len == len as u64 => {
                self.mappings.remove(index);
                self.last = 0;
                true
            }
            _ => false,
        }
    }

    /// Returns the number of mappings.
    pub fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// Returns the mapping that holds `len` bytes at `address`.
    fn find(&mut self, address: u64, len: u64) -> Option<&Mapping> {
        if !self.mappings.get(self.last).is_some_and(|mapping| mapping.holds(address, len)) {
            self.last = self.mappings.partition_point(|mapping| mapping.iova <= address).checked_sub(1)?;
        }
        self.mappings.get(self.last).filter(|mapping| mapping.holds(address, len))
    }

    /// Reads the line at `address`, a multiple of [`LINE`].
    pub fn read_line(&mut self, address: u64, line: &mut [u8; LINE]) -> Result<(), Unmapped> {
        if let Some(mapping) = self.find(address, LINE as u64) {
            for (word, at) in line.chunks_exact_mut(WORD).zip((address..).step_by(WORD)) {
                word.copy_from_slice(&mapping.word(at).load(Ordering::Acquire).to_ne_bytes());
            }
            return Ok(());
        }
        let mut mapped = 0;
        for (byte, at) in line.iter_mut().zip(address..) {
            *byte = POISON;
            if let Some(mapping) = self.find(at, 1) {
                *byte = mapping.byte(at).load(Ordering::Acquire);
                mapped += 1;
            }
        }
        if mapped == 0 {
            return Err(Unmapped { address, len_bytes: LINE });
        }
        Ok(())
    }

    /// Writes the bytes of the line at `address` whose bit is set in `strobe`, from the first to the last.
    /// If one of them is not mapped, none is written.
    pub fn write_line(&mut self, address: u64, line: &[u8; LINE], strobe: u64) -> Result<(), Unmapped> {
        if strobe == 0 {
            return Ok(());
        }
        let first = strobe.trailing_zeros() as usize;
        let len = LINE - first - strobe.leading_zeros() as usize;
        if let Some(mapping) = self.find(address + first as u64, len as u64) {
            mapping.write(address, line, strobe);
            return Ok(());
        }
        let is_strobed = |byte: usize| strobe >> byte & 1 == 1;
        if let Some(bad) = (0..LINE).find(|&byte| is_strobed(byte) && self.find(address + byte as u64, 1).is_none()) {
            let len_bytes = (bad..LINE).take_while(|&byte| is_strobed(byte) && self.find(address + byte as u64, 1).is_none()).count();
            return Err(Unmapped { address: address + bad as u64, len_bytes });
        }
        for byte in (0..LINE).filter(|&byte| is_strobed(byte)) {
            if let Some(mapping) = self.find(address + byte as u64, 1) {
                mapping.write(address, line, 1 << byte);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapped(memory: &mut Memory, bytes: &mut [u8]) -> u64 {
        let ptr = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: every test keeps its bytes longer than its `Memory`, and looks at them when no access is under way.
        unsafe { memory.map(ptr, bytes.len(), 64) }
    }

    #[test]
    fn an_access_beside_a_mapping_is_reported_with_its_first_byte() {
        let mut bytes = vec![1u8; 200];
        let mut memory = Memory::new();
        let iova = mapped(&mut memory, &mut bytes);
        let line = (iova + 200) & !63;
        let inside = (iova + 200 - line) as usize;
        assert_eq!(
            memory.write_line(line, &[9; 64], u64::MAX),
            Err(Unmapped { address: iova + 200, len_bytes: 64 - inside }),
            "the end of the line is not mapped"
        );
        assert_eq!(bytes, vec![1u8; 200], "nothing of a bad write is written");
        let mut memory = Memory::new();
        let iova = mapped(&mut memory, &mut bytes);
        assert!(memory.read_line((iova & !63) + 256 + 64, &mut [0; 64]).is_err());
        assert!(memory.read_line((iova & !63) - 64, &mut [0; 64]).is_err());
        assert!(memory.unmap(iova, 200));
        assert!(memory.read_line((iova & !63) + 64, &mut [0; 64]).is_err(), "no access after unmap");
        assert!(!memory.unmap(iova, 200));
    }

    #[test]
    fn addresses_are_not_given_twice_and_keep_the_offset_in_the_page() {
        let mut bytes = vec![0u8; 100];
        let mut memory = Memory::new();
        let first = mapped(&mut memory, &mut bytes);
        assert!(memory.unmap(first, 100));
        let second = mapped(&mut memory, &mut bytes);
        assert!(second >= first + 4096);
        assert_eq!(first % 4096, second % 4096);
        assert_eq!(first % 4096, bytes.as_ptr() as u64 % 4096);
    }

    proptest! {
        #[test]
        fn a_line_is_copied_byte_by_byte_as_mapping_and_strobes_say(
            start in 0usize..130, len in 1usize..130, line in 0u64..5, strobe: u64, data: [u8; 32]
        ) {
            let mut store = vec![0x11u8; 1024];
            let base = store.as_ptr().align_offset(64) + 64;
            let mut memory = Memory::new();
            let iova = mapped(&mut memory, &mut store[base + start..base + start + len]);
            let zero = iova - start as u64;
            let mut beat = [0u8; 64];
            beat[..32].copy_from_slice(&data);
            beat[32..].copy_from_slice(&data);
            let is_mapped = |at: usize| (start..start + len).contains(&at);
            let first = 64 * line as usize;

            let mut read = [0u8; 64];
            let result = memory.read_line(zero + first as u64, &mut read);
            prop_assert_eq!(result.is_ok(), (first..first + 64).any(is_mapped));
            for (byte, value) in read.iter().enumerate().filter(|_| result.is_ok()) {
                prop_assert_eq!(*value, if is_mapped(first + byte) { 0x11 } else { POISON });
            }

            let result = memory.write_line(zero + first as u64, &beat, strobe);
            let stray = (0..64).find(|&byte| strobe >> byte & 1 == 1 && !is_mapped(first + byte));
            prop_assert_eq!(result.err().map(|error| error.address), stray.map(|byte| zero + (first + byte) as u64));
            drop(memory);
            for (at, value) in store[base..].iter().enumerate() {
                let written = stray.is_none() && (first..first + 64).contains(&at) && strobe >> (at - first) & 1 == 1;
                prop_assert_eq!(*value, if written { beat[at - first] } else { 0x11 });
            }
        }
    }
}
