//! Watches the card's AXI4 master port for what the protocol, and we, forbid.
//!
//! Checked in every clock: a request stays valid and unchanged until it is taken, and so does write
//! data; bursts are incrementing, of whole beats, within 4 KiB; `wlast` stands at the last beat;
//! an ID is not used for a second read while a first is under way.

use crate::ffi::{AxiIn, AxiOut};

/// What a second read with an ID that is still under way means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdReuse {
    /// Nothing: AXI allows it, and answers such reads in order.
    Allow,
    /// A fault: the core names each read in flight by an ID of its own.
    #[default]
    Forbid,
}

/// The checker. Says what is broken; see [`Checker::check`].
#[derive(Debug)]
pub struct Checker {
    id_reuse: IdReuse,
    /// Outputs of the last clock whose channel was valid and not taken.
    held: AxiOut,
    ar_waits: bool,
    aw_waits: bool,
    w_waits: bool,
    /// Reads under way, by ID.
    reads: [u16; 256],
}

impl Checker {
    /// Returns a checker for a port on which nothing is under way.
    pub fn new(id_reuse: IdReuse) -> Self {
        Self { id_reuse, held: AxiOut::default(), ar_waits: false, aw_waits: false, w_waits: false, reads: [0; 256] }
    }

    /// Looks at one clock. Returns the first rule that it breaks.
    pub fn check(&mut self, output: &AxiOut, input: &AxiIn) -> Result<(), String> {
        if input.rvalid && output.rready && input.rlast {
            self.reads[usize::from(input.rid)] = self.reads[usize::from(input.rid)].saturating_sub(1);
        }
        if self.ar_waits || output.arvalid {
            self.check_read_request(output, input)?;
        }
        if self.aw_waits || output.awvalid {
            self.check_write_request(output, input)?;
        }
        if self.w_waits {
            if !output.wvalid {
                return Err("wvalid fell before wready".into());
            }
            if (output.wstrb, output.wlast) != (self.held.wstrb, self.held.wlast) || output.wdata != self.held.wdata {
                return Err("write data changed while wready was low".into());
            }
        }
        self.w_waits = output.wvalid && !input.wready;
        if self.w_waits {
            (self.held.wdata, self.held.wstrb, self.held.wlast) = (output.wdata, output.wstrb, output.wlast);
        }
        Ok(())
    }

    fn check_read_request(&mut self, output: &AxiOut, input: &AxiIn) -> Result<(), String> {
        let request = (output.arid, output.araddr, output.arlen, output.arsize, output.arburst);
        if self.ar_waits {
            if !output.arvalid {
                return Err("arvalid fell before arready".into());
            }
            if request != (self.held.arid, self.held.araddr, self.held.arlen, self.held.arsize, self.held.arburst) {
                return Err("read request changed while arready was low".into());
            }
        } else {
            if output.arsize < 6 && output.arlen == 0 && output.arburst == 1 {
                check_narrow(output.araddr, output.arsize)?;
            } else {
                check_burst("read", output.araddr, output.arlen, output.arsize, output.arburst)?;
            }
            let reads = &mut self.reads[usize::from(output.arid)];
            if *reads != 0 && self.id_reuse == IdReuse::Forbid {
                return Err(format!("read of {:#x} with ID {}, which is still under way", output.araddr, output.arid));
            }
            *reads += 1;
            (self.held.arid, self.held.araddr, self.held.arlen, self.held.arsize, self.held.arburst) = request;
        }
        self.ar_waits = !input.arready;
        Ok(())
    }

    fn check_write_request(&mut self, output: &AxiOut, input: &AxiIn) -> Result<(), String> {
        let request = (output.awid, output.awaddr, output.awlen, output.awsize, output.awburst);
        if self.aw_waits {
            if !output.awvalid {
                return Err("awvalid fell before awready".into());
            }
            if request != (self.held.awid, self.held.awaddr, self.held.awlen, self.held.awsize, self.held.awburst) {
                return Err("write request changed while awready was low".into());
            }
        } else {
            check_burst("write", output.awaddr, output.awlen, output.awsize, output.awburst)?;
            (self.held.awid, self.held.awaddr, self.held.awlen, self.held.awsize, self.held.awburst) = request;
        }
        self.aw_waits = !input.awready;
        Ok(())
    }
}

/// Checks a single beat of less than a line.
fn check_narrow(address: u64, size: u8) -> Result<(), String> {
    if address % (1 << size) != 0 {
        return Err(format!("read of {address:#x} with size {size}, which is not aligned"));
    }
    Ok(())
}

fn check_burst(kind: &str, address: u64, len: u8, size: u8, burst: u8) -> Result<(), String> {
    if size != 6 {
        return Err(format!("{kind} of {address:#x} with size {size}; beats of a burst are 64 bytes (6)"));
    }
    if burst != 1 {
        return Err(format!("{kind} of {address:#x} with burst type {burst}; all bursts are INCR (1)"));
    }
    let last = (address & !63) + 64 * u64::from(len);
    if last / 4096 != address / 4096 {
        return Err(format!("{kind} of {} beats at {address:#x} crosses 4 KiB", u32::from(len) + 1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: u64, len: u8, id: u8) -> AxiOut {
        AxiOut { arvalid: true, araddr: address, arlen: len, arid: id, arsize: 6, arburst: 1, ..AxiOut::default() }
    }

    #[test]
    fn a_burst_across_4_kib_is_found() {
        let ready = AxiIn { arready: true, ..AxiIn::default() };
        let mut checker = Checker::new(IdReuse::Allow);
        assert_eq!(checker.check(&read(0x1000, 63, 0), &ready), Ok(()));
        assert_eq!(checker.check(&read(0x1FFF, 0, 0), &ready), Ok(()));
        assert!(checker.check(&read(0x1040, 63, 0), &ready).unwrap_err().contains("crosses 4 KiB"));
        let narrow = AxiOut { arsize: 2, ..read(0x1000, 1, 0) };
        assert!(checker.check(&narrow, &ready).unwrap_err().contains("size 2"));
        assert_eq!(checker.check(&AxiOut { arsize: 3, ..read(0x1038, 0, 0) }, &ready), Ok(()));
        assert!(checker.check(&AxiOut { arsize: 3, ..read(0x1034, 0, 0) }, &ready).unwrap_err().contains("not aligned"));
        let fixed = AxiOut { arburst: 0, ..read(0x1000, 0, 0) };
        assert!(checker.check(&fixed, &ready).unwrap_err().contains("INCR"));
    }

    #[test]
    fn a_request_must_not_change_or_vanish_before_it_is_taken() {
        let mut checker = Checker::new(IdReuse::Allow);
        assert_eq!(checker.check(&read(0x1000, 0, 0), &AxiIn::default()), Ok(()));
        assert_eq!(checker.check(&read(0x1000, 0, 0), &AxiIn::default()), Ok(()));
        assert!(checker.check(&read(0x2000, 0, 0), &AxiIn::default()).unwrap_err().contains("changed"));
        assert!(checker.check(&AxiOut::default(), &AxiIn::default()).unwrap_err().contains("fell"));

        let mut checker = Checker::new(IdReuse::Allow);
        let write = AxiOut { wvalid: true, wstrb: 1, ..AxiOut::default() };
        assert_eq!(checker.check(&write, &AxiIn::default()), Ok(()));
        let mut other = write;
        other.wdata[63] = 1;
        assert!(checker.check(&other, &AxiIn::default()).unwrap_err().contains("write data changed"));
    }

    #[test]
    fn an_id_under_way_is_not_used_again_unless_allowed() {
        let ready = AxiIn { arready: true, ..AxiIn::default() };
        let mut checker = Checker::new(IdReuse::Forbid);
        assert_eq!(checker.check(&read(0x1000, 0, 7), &ready), Ok(()));
        assert!(checker.check(&read(0x2000, 0, 7), &ready).unwrap_err().contains("ID 7"));
        let last = AxiIn { rvalid: true, rlast: true, rid: 7, ..AxiIn::default() };
        assert_eq!(checker.check(&AxiOut { rready: true, ..AxiOut::default() }, &last), Ok(()));
        assert_eq!(checker.check(&read(0x2000, 0, 7), &ready), Ok(()));
    }
}
