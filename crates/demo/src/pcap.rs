//! Writes classic pcap files with timestamps in microseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use esplanade_host::private;

const SNAPLEN: u32 = 262_144;
const LINKTYPE_ETHERNET: u32 = 1;

#[derive(Debug)]
pub struct PcapWriter {
    file: BufWriter<File>,
}

impl PcapWriter {
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(private::create(path)?);
        file.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
        file.write_all(&2u16.to_le_bytes())?;
        file.write_all(&4u16.to_le_bytes())?;
        // Time zone and accuracy are zero by convention.
        file.write_all(&[0; 8])?;
        file.write_all(&SNAPLEN.to_le_bytes())?;
        file.write_all(&LINKTYPE_ETHERNET.to_le_bytes())?;
        Ok(Self { file })
    }

    pub fn write(&mut self, time: SystemTime, frame: &[u8]) -> io::Result<()> {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let len = (frame.len() as u32).min(SNAPLEN);
        self.file
            .write_all(&(since.as_secs() as u32).to_le_bytes())?;
        self.file.write_all(&since.subsec_micros().to_le_bytes())?;
        self.file.write_all(&len.to_le_bytes())?;
        self.file.write_all(&(frame.len() as u32).to_le_bytes())?;
        self.file
            .write_all(frame.get(..len as usize).unwrap_or(frame))
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
