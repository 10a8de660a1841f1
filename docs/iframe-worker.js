// Search in pages on a disk, where browsers start no worker: an object that
// works as one, within a frame of the page.
if (location.protocol === 'file:') {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = Object.assign(document.createElement('iframe'), {hidden: true});
      document.documentElement.append(this.frame);
      const inside = this.inside = this.frame.contentWindow;
      const load = (src) => new Promise((resolve, reject) => {
        const script = inside.document.createElement('script');
        Object.assign(script, {src, onload: resolve, onerror: reject});
        inside.document.head.append(script);
      });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent('message', {data}));
      inside.importScripts = (...sources) => sources.reduce(
        (before, src) => before.then(() => load(src)), Promise.resolve());
      this.ready = load(new URL(address, location.href).href);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent('message', {data})));
    }
    terminate() { this.frame.remove(); }
  };
}
