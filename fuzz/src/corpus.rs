//! The corpora: one input to a file, or many small ones packed into one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::packets::next_packet;

/// The ending of a file that holds inputs, each behind two bytes of length.
const PACKED: &str = "pack";

/// The folder with the corpus of a target.
pub fn folder(target: &str) -> PathBuf {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    corpora.join(target)
}

/// The inputs of a file.
pub fn inputs(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let content = fs::read(path)?;
    if path.extension().is_none_or(|extension| extension != PACKED) {
        return Ok(vec![content]);
    }
    let (mut rest, mut inputs) = (&content[..], Vec::new());
    while let Some(input) = next_packet(&mut rest) {
        inputs.push(input.to_vec());
    }
    Ok(inputs)
}

/// The content of a file that holds these inputs. A longer one than 65,535 bytes cannot be packed.
pub fn pack(inputs: &[Vec<u8>]) -> Vec<u8> {
    let pack = |input: &Vec<u8>| {
        let len = u16::try_from(input.len()).expect("a short input");
        [&len.to_be_bytes()[..], input].concat()
    };
    inputs.iter().flat_map(pack).collect()
}

/// The files of a folder, in the order of their names.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let folder = tempfile::tempdir().unwrap();
        let all = [vec![1, 2, 3], vec![], vec![7; 300]];
        let packed = folder.path().join("found.pack");
        fs::write(&packed, pack(&all)).unwrap();
        assert_eq!(inputs(&packed).unwrap(), all);
        let single = folder.path().join("single");
        fs::write(&single, pack(&all)).unwrap();
        assert_eq!(inputs(&single).unwrap(), [pack(&all)]);
        assert_eq!(files(folder.path()).unwrap(), [packed, single]);
    }
}
