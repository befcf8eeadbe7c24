//! A prototype of responses that outlive their exchange.

mod held;
