/** A runtime that shares data objects, for tests: what a test tells it to do, and what became of it. */

export async function sharing(runtime, Syncher) {
  await runtime.logIn();
  const syncher = new Syncher(runtime.addHyperty());
  const kept = {
    object: null,
    copy: null,
    unnoticed: [],
    reads: 0,
    adding: Promise.resolve(),
    stopped: false,
    refused: [],
  };
  const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  const plain = (each) => JSON.parse(JSON.stringify(each));

  const actions = {
    async create() {
      kept.object = await syncher.create({ n: 0, list: [] }, { name: "shared" });
      return { url: kept.object.url };
    },
    async subscribe({ url }) {
      const copy = (kept.copy = await syncher.subscribe(url));
      let last = copy.data.n;
      copy.onChange(({ attribute, value }) => {
        if (attribute === "") {
          kept.reads += 1;
          last = copy.data.n;
        } else if (attribute === "n") {
          if (value !== last + 1) kept.unnoticed.push([last, value]);
          last = value;
        }
      });
      return {};
    },
    /** Twenty changes a second, or a child a second, in the background. */
    async run({ times }) {
      const { object, copy } = kept;
      kept.adding = (async () => {
        for (let n = 1; n <= times && !kept.stopped; n += 1) {
          if (object) {
            object.data.n += 1;
            if (n % 10 === 0) object.data.list.push({ n });
            if (object.data.list.length > 20) object.data.list.splice(0, 7);
          } else if (n % 20 === 0) {
            await copy.addChild({ n }).catch((error) => kept.refused.push(error.message));
          }
          await pause(50);
        }
      })();
      return {};
    },
    async stop() {
      kept.stopped = true;
      return {};
    },
    async finish() {
      await kept.adding;
      return {};
    },
    async state() {
      const { data, version, children } = kept.object ?? kept.copy;
      const { unnoticed, reads, refused } = kept;
      return { data: plain(data), version, children: plain(children), unnoticed, reads, refused };
    },
  };
  return (order) => actions[order.do](order);
}
