//! The batch that tries an engine.

use esplanade_crypto::self_test::Trial;
use esplanade_crypto::{Direction, Job, JobStatus, Transform, cpu};

#[test]
fn an_engine_that_works_passes() {
    for direction in [Direction::Seal, Direction::Open] {
        let (trial, mut batch) = Trial::new(direction).unwrap();
        assert!(batch.jobs.len() >= Transform::all().count());
        assert!(trial.check(&batch).is_err(), "nothing was done yet");
        cpu::process(&mut batch);
        trial.check(&batch).unwrap();
    }
}

#[test]
fn one_wrong_byte_is_found() {
    for direction in [Direction::Seal, Direction::Open] {
        let (trial, mut batch) = Trial::new(direction).unwrap();
        cpu::process(&mut batch);
        for number in 0..batch.jobs.len() {
            let Job { esp, status, .. } = batch.jobs[number];
            if status == JobStatus::Done {
                batch.buffer[esp as usize] ^= 1;
                assert!(trial.check(&batch).is_err(), "{direction:?}, job {number}");
                batch.buffer[esp as usize] ^= 1;
            }
            // These engines accept all packets, or refuse all.
            batch.jobs[number].status = match status {
                JobStatus::Done => JobStatus::AuthFailed,
                _ => JobStatus::Done,
            };
            assert!(trial.check(&batch).is_err(), "{direction:?}, job {number}");
            batch.jobs[number].status = status;
        }
    }
}
