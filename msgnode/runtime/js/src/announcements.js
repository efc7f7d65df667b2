/** What a node held for a stub that is no more is subscribed again through the one that follows. */

const AT_A_TIME = 100; // addresses in one request

/**
 * @param held address -> {from, to, source}: who subscribed it, where, for whom
 * @param bus the MessageBUS
 * @param onRefused called with what the node refuses, in words
 */
export function announce(held, bus, onRefused) {
  const batches = new Map();
  for (const [address, { from, to, source }] of held) {
    const key = JSON.stringify([from, to, source]);
    const batch = batches.get(key) ?? { from, to, source, addresses: [] };
    batch.addresses.push(address);
    batches.set(key, batch);
  }
  for (const { from, to, source, addresses } of batches.values()) {
    while (addresses.length) {
      const resources = addresses.splice(0, AT_A_TIME);
      const body = source === undefined ? { resources } : { resources, source };
      bus.postMessage({ type: "subscribe", from, to, body }, ({ body: { code } }) => {
        if (code >= 300 && code !== 408)
          onRefused(
            `The node answers ${code} to ${resources.length} addresses that it held before.`,
          );
      });
    }
  }
}
