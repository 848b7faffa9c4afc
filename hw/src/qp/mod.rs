//! The requester's side of a queue pair: what was posted, what is outstanding, what is done.
//!
//! | block | keeps |
//! |---|---|
//! | [`Posted`] | producer index and death of each send queue, as the host rings |
//! | [`FlushGate`] | a dead queue pair until nothing of it is under way in the transmitter |
//! | [`Completer`] | the table of outstanding requests; turns acknowledgements into completions |
//! | [`Timers`] | how long each queue pair waits for an acknowledgement |
//! | [`Requester`] | the wiring of the four |

mod completer;
mod flush_gate;
mod posted;
mod requester;
mod timers;

pub use completer::Completer;
pub use flush_gate::FlushGate;
pub use posted::Posted;
pub use requester::Requester;
pub use timers::Timers;
