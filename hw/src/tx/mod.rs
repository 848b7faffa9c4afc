//! From send queues in host memory to the MAC.
//!
//! ```text
//! bell -> Scheduler -> (host memory) -> Decode -> KeyCheck -> Segment -> descriptors -> Choose -> Headers -> Merge -> Icrc -> frames
//!                                                                `-> Gather -> (host memory) -> payload FIFO ----------'
//! ```

mod choose;
mod decode;
mod gather;
mod headers;
mod icrc;
mod key_check;
mod mac_out;
mod merge;
mod path;
mod scheduler;
mod segment;

pub use choose::Choose;
pub use decode::Decode;
pub use gather::Gather;
pub use headers::Headers;
pub use icrc::Icrc;
pub use key_check::KeyCheck;
pub use mac_out::MacOut;
pub use merge::Merge;
pub use path::{TxPath, TxStages};
pub use scheduler::Scheduler;
pub use segment::Segment;
