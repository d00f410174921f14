//! Random bytes from aws-lc's generator.

/// The generator failed. Nothing that needs randomness may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the random generator failed")]
pub struct RandomError;

pub fn fill(bytes: &mut [u8]) -> Result<(), RandomError> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| RandomError)
}

pub fn next_u32() -> Result<u32, RandomError> {
    let mut bytes = [0; 4];
    fill(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}
