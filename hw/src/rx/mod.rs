//! From the MAC to host memory.

mod ack_gate;
mod buffer;
mod decide;
#[cfg(test)]
mod frames;
mod front;
mod front_records;
mod front_top;
mod icrc;
mod intake;
mod judge;
mod key_check;
mod parse;
mod path;
mod respond_records;
mod responder;
#[cfg(test)]
mod samples;
mod scatter;

pub use ack_gate::AckGate;
pub use decide::Decide;
pub use front::RxFront;
pub use front_records::{RxBeat, RxChecks, RxFields, RxReport};
pub use front_top::RxFrontTop;
pub use icrc::IcrcCheck;
pub use key_check::KeyCheck;
pub use path::RxPath;
pub use respond_records::{AckRecord, Checked, RxAction};
pub use responder::Responder;
pub use scatter::Scatter;
