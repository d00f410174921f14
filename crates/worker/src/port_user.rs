//! Finds out which program holds a UDP port, for an error message.

use std::fs;

/// Returns the program that holds `port` in this network namespace, such as "charon (process 123)".
/// Returns `None` if /proc does not tell.
pub fn port_user(port: u16) -> Option<String> {
    let inode = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"]
        .iter()
        .find_map(|file| socket_inode(&fs::read_to_string(file).ok()?, port))?;
    let target = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?;
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(id) = name
            .to_str()
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let holds = descriptors.flatten().any(|entry| {
            fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == target.as_str())
        });
        if holds {
            let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {id})", program.trim()));
        }
    }
    None
}

/// Finds the inode of the socket on `port` in the text of /proc/net/udp.
fn socket_inode(table: &str, port: u16) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        let (_, hex) = local.rsplit_once(':')?;
        (u16::from_str_radix(hex, 16) == Ok(port))
            .then(|| fields.nth(7))?
            .map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_found_by_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n \
            10: 00000000:01F4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0 0\n";
        assert_eq!(socket_inode(table, 500), Some("4711".to_owned()));
        assert_eq!(socket_inode(table, 4500), None);
        assert_eq!(socket_inode("garbage", 500), None);
    }

    #[test]
    fn our_own_port_is_ours() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let user = port_user(socket.local_addr().unwrap().port()).unwrap();
        assert!(
            user.contains(&format!("process {}", std::process::id())),
            "{user}"
        );
    }
}
