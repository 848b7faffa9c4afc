//! Registered memory between two margins that nobody may write, and a record of what should be in it.

use std::sync::Arc;

use verbena_host::{Device, DmaBuffer, Mr, Pd, Sge};

/// Bytes in front of and behind the registered part: mapped, but not registered.
pub const MARGIN: usize = 4096;

/// What fills a region: no byte that [`source_byte`] gives, so that a byte that was not written, or should not be, shows.
pub const CANARY: u8 = 0xF5;

/// Makes a byte of data of a random one.
pub const fn source_byte(random: u8) -> u8 {
    if random >= 0xF0 {
        random & 0x7F
    } else {
        random
    }
}

/// A registered region with margins.
#[derive(Debug)]
pub struct Region {
    /// The region.
    pub mr: Arc<Mr>,
    whole: DmaBuffer,
    expected: Vec<u8>,
}

impl Region {
    /// Registers `len` bytes of canaries at `base_va` with bits of [`verbena_host::access`].
    pub fn new(device: Arc<dyn Device>, pd: &Arc<Pd>, len: usize, base_va: u64, rights: u8) -> Self {
        let whole = device.alloc(len + 2 * MARGIN, 4096).expect("memory for a region");
        Self::on(whole, 0, len, pd, base_va, rights)
    }

    /// Registers `len` bytes of `whole`, `shift` bytes behind the margin.
    pub fn on(whole: DmaBuffer, shift: usize, len: usize, pd: &Arc<Pd>, base_va: u64, rights: u8) -> Self {
        whole.fill(0, whole.len(), CANARY).expect("within the buffer");
        let part = whole.part(MARGIN + shift, len).expect("within the buffer");
        let mr = Mr::register_at_blocking(pd, part, base_va, rights).expect("the region is registered");
        let expected = vec![CANARY; whole.len()];
        Self { mr, whole, expected }
    }

    /// Returns the number of registered bytes.
    pub fn len(&self) -> usize {
        self.mr.memory().len()
    }

    /// Tells whether nothing is registered, which can't be.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of byte `offset`.
    pub fn va(&self, offset: usize) -> u64 {
        self.mr.base_va().wrapping_add(offset as u64)
    }

    /// Returns the key, local and remote.
    pub fn key(&self) -> u32 {
        self.mr.rkey()
    }

    /// Returns an entry for `len` bytes at `offset`.
    pub fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge { va: self.va(offset), len_bytes: len, lkey: self.mr.lkey() }
    }

    /// Puts `bytes` at `offset`, as the host.
    pub fn set(&mut self, offset: usize, bytes: &[u8]) {
        self.mr.memory().copy_in(offset, bytes).expect("within the region");
        self.expect(offset, bytes);
    }

    /// Fills the region with data of the seed.
    pub fn randomise(&mut self, seed: u64) {
        let mut rng = verbena_sim::rng::Rng::new(seed, 0x5EED);
        let bytes: Vec<u8> = (0..self.len().div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).map(source_byte).collect();
        self.set(0, &bytes[..self.len()]);
    }

    /// Makes `len` bytes at `offset` canaries again, as the host.
    pub fn clear(&mut self, offset: usize, len: usize) {
        self.mr.memory().fill(offset, len, CANARY).expect("within the region");
        let start = self.start() + offset;
        self.expected[start..start + len].fill(CANARY);
    }

    /// Says that `bytes` are to arrive at `offset`.
    pub fn expect(&mut self, offset: usize, bytes: &[u8]) {
        let start = self.start() + offset;
        self.expected[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Says that each of `bytes` may have arrived at `offset`, or not, and that what is there now is to stay.
    #[track_caller]
    pub fn adopt(&mut self, offset: usize, bytes: &[u8]) {
        let mut found = vec![0; bytes.len()];
        self.mr.memory().copy_out(offset, &mut found).expect("within the region");
        let wrong = (0..bytes.len()).find(|&at| found[at] != bytes[at] && found[at] != self.expected(offset, bytes.len())[at]);
        assert_eq!(wrong.map(|at| (offset + at, found[at])), None, "a byte that is neither old nor new, and what it is");
        self.expect(offset, &found);
    }

    /// Returns what should be at `offset`.
    pub fn expected(&self, offset: usize, len: usize) -> &[u8] {
        let start = self.start() + offset;
        &self.expected[start..start + len]
    }

    /// Returns the first byte that is not as it should be, margins included: its offset in the region, what it is, what it should be.
    pub fn difference(&self) -> Option<(isize, u8, u8)> {
        let found = self.whole.to_vec();
        if found == self.expected {
            return None;
        }
        let at = found.iter().zip(&self.expected).position(|(found, expected)| found != expected)?;
        Some((at as isize - self.start() as isize, found[at], self.expected[at]))
    }

    /// Panics if a byte is not as it should be, margins included.
    #[track_caller]
    pub fn check(&self, what: &str) {
        if let Some((at, found, expected)) = self.difference() {
            panic!("{what}: byte {at} of the region of {} bytes is {found:#04x}, not {expected:#04x}", self.len());
        }
    }

    fn start(&self) -> usize {
        (self.mr.memory().iova() - self.whole.iova()) as usize
    }

    /// Deregisters the region.
    pub fn close(self) {
        self.mr.close_blocking().expect("the region is closed");
    }
}
