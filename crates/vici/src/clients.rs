//! The clients that are connected. All clients share connections and memory: when there is no room, a client has to go.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Most connections at one time. There are more of them than commands that may wait for IKE, so that a connection is
/// always idle.
pub const CONNECTIONS_MAX: usize = 320;
/// Most bytes that may wait for clients to read them, of all clients together.
pub(crate) const BACKLOG_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
struct Client {
    id: u64,
    uid: u32,
    /// The number of the client's last step, counted over all clients. `None` while a command is at work.
    idle_since: Option<u64>,
    /// The client waits for events, so it is idle by its nature.
    listens: bool,
    backlog: usize,
    close: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ClientList {
    clients: Vec<Client>,
    last_id: u64,
    last_step: u64,
    backlog: usize,
}

/// All clients. Commands of one client do not keep another client from being heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients(Arc<Mutex<ClientList>>);

impl Clients {
    fn list(&self) -> MutexGuard<'_, ClientList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a client, in place of an idle one if there is no room. Returns `None` if all clients are busy.
    pub fn admit(&self, uid: u32) -> Option<AdmittedClient> {
        let mut list = self.list();
        if list.clients.len() >= CONNECTIONS_MAX && !list.close_idle() {
            return None;
        }
        list.last_id += 1;
        let idle_since = Some(list.step());
        let (id, close) = (list.last_id, Arc::new(Notify::new()));
        list.clients.push(Client {
            id,
            uid,
            idle_since,
            listens: false,
            backlog: 0,
            close: Arc::clone(&close),
        });
        Some(AdmittedClient(Membership {
            clients: self.clone(),
            id,
            close,
        }))
    }

    /// Closes an idle connection to gain its descriptor. Returns false if no connection is idle.
    pub fn close_idle(&self) -> bool {
        self.list().close_idle()
    }
}

impl ClientList {
    /// Closes an idle connection of the user with most connections. Clients that listen to no events go first, and
    /// among them the longest idle one.
    fn close_idle(&mut self) -> bool {
        let of_user = |uid| self.clients.iter().filter(|one| one.uid == uid).count();
        let victim = self
            .clients
            .iter()
            .filter_map(|one| {
                let longest = Reverse(one.idle_since?);
                Some(((of_user(one.uid), !one.listens, longest), one.id))
            })
            .max()
            .map(|(_, id)| id);
        victim.is_some_and(|id| self.close(id))
    }

    fn close(&mut self, id: u64) -> bool {
        match self.remove(id) {
            Some(client) => {
                // The notice is kept for a task that does not wait for it yet.
                client.close.notify_one();
                true
            }
            None => false,
        }
    }

    fn remove(&mut self, id: u64) -> Option<Client> {
        let place = self.clients.iter().position(|one| one.id == id)?;
        let client = self.clients.swap_remove(place);
        self.backlog -= client.backlog;
        Some(client)
    }

    fn step(&mut self) -> u64 {
        self.last_step += 1;
        self.last_step
    }

    fn find(&mut self, id: u64) -> Option<&mut Client> {
        self.clients.iter_mut().find(|one| one.id == id)
    }
}

/// A client's place among all clients. The place is free again on drop.
#[derive(Debug)]
pub(crate) struct AdmittedClient(Membership);

impl AdmittedClient {
    pub fn membership(&self) -> &Membership {
        &self.0
    }
}

impl Drop for AdmittedClient {
    fn drop(&mut self) {
        self.0.clients.list().remove(self.0.id);
    }
}

/// A client's entry in the list, shared by the tasks that serve it.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    clients: Clients,
    id: u64,
    close: Arc<Notify>,
}

impl Membership {
    /// Waits until the client has to make room for another.
    pub async fn closed(&self) {
        self.close.notified().await;
    }

    pub fn set_busy(&self, busy: bool) {
        let mut list = self.clients.list();
        let step = list.step();
        if let Some(client) = list.find(self.id) {
            client.idle_since = (!busy).then_some(step);
        }
    }

    pub fn set_listens(&self, listens: bool) {
        if let Some(client) = self.clients.list().find(self.id) {
            client.listens = listens;
        }
    }

    /// Accounts for bytes that are to wait for the client. If too many bytes wait for all clients, the client with most
    /// of them goes. Returns false if the client itself is gone.
    pub fn queue(&self, len: usize) -> bool {
        let mut list = self.clients.list();
        let Some(client) = list.find(self.id) else {
            return false;
        };
        client.backlog += len;
        list.backlog += len;
        if list.backlog > BACKLOG_BYTES_MAX {
            let most = list.clients.iter().max_by_key(|one| one.backlog);
            if let Some(id) = most.map(|one| one.id) {
                list.close(id);
            }
        }
        list.find(self.id).is_some()
    }

    /// Accounts for bytes that have been written. Returns true if no more bytes wait for the client.
    pub fn wrote(&self, len: usize) -> bool {
        let mut list = self.clients.list();
        let Some(client) = list.find(self.id) else {
            return true;
        };
        let len = len.min(client.backlog);
        client.backlog -= len;
        let drained = client.backlog == 0;
        list.backlog -= len;
        drained
    }

    pub fn is_drained(&self) -> bool {
        let mut list = self.clients.list();
        list.find(self.id).is_none_or(|client| client.backlog == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u32 = 0;
    const OTHER: u32 = 1000;

    fn ids(clients: &Clients) -> Vec<u64> {
        let mut ids: Vec<u64> = clients.list().clients.iter().map(|one| one.id).collect();
        ids.sort_unstable();
        ids
    }

    fn admit(clients: &Clients, uid: u32, count: usize) -> Vec<AdmittedClient> {
        (0..count).map(|_| clients.admit(uid).unwrap()).collect()
    }

    #[tokio::test]
    async fn the_longest_idle_client_of_the_greediest_user_goes_first() {
        let clients = Clients::default();
        let root = admit(&clients, ROOT, 2);
        let others = admit(&clients, OTHER, CONNECTIONS_MAX - 2);
        // The first one listens for events, the second has just given a command.
        others[0].0.set_listens(true);
        others[1].0.set_busy(true);
        others[1].0.set_busy(false);
        others[2].0.set_busy(true);
        let new = admit(&clients, OTHER, 1);
        others[3].0.closed().await;
        assert_eq!(clients.list().clients.len(), CONNECTIONS_MAX);

        // The clients of root stay while the other user has more.
        let more = admit(&clients, OTHER, 2 * CONNECTIONS_MAX);
        let left = ids(&clients);
        for one in root.iter().chain([&others[2]]) {
            assert!(left.contains(&one.0.id));
        }
        drop((new, more, others));
        assert_eq!(ids(&clients), [1, 2]);
        drop(root);
        assert!(ids(&clients).is_empty());
    }

    #[tokio::test]
    async fn listeners_go_when_nobody_else_is_idle_and_busy_ones_never() {
        let clients = Clients::default();
        let members = admit(&clients, ROOT, CONNECTIONS_MAX);
        members.iter().for_each(|one| one.0.set_busy(true));
        assert!(clients.admit(ROOT).is_none());
        members[7].0.set_busy(false);
        members[7].0.set_listens(true);
        assert!(clients.admit(OTHER).is_some());
        members[7].0.closed().await;
    }

    #[tokio::test]
    async fn who_has_most_waiting_goes_when_memory_is_short() {
        let clients = Clients::default();
        let members = admit(&clients, ROOT, 3);
        assert!(members[0].0.queue(BACKLOG_BYTES_MAX / 2));
        assert!(members[1].0.queue(BACKLOG_BYTES_MAX / 4));
        assert!(members[2].0.queue(BACKLOG_BYTES_MAX / 4));
        assert!(members[2].0.queue(1), "there is room again");
        members[0].0.closed().await;
        assert!(!members[0].0.queue(1), "what is closed gets nothing");
        assert!(!members[1].0.wrote(BACKLOG_BYTES_MAX / 4 - 1));
        assert!(members[1].0.wrote(1) && members[1].0.is_drained());
        assert!(!members[2].0.queue(BACKLOG_BYTES_MAX));
        drop(members);
        assert_eq!(clients.list().backlog, 0);
    }
}
