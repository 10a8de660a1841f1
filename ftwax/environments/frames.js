'use strict';
// Any game, by the frames that it renders.
ftwax.games.frames = {
  size: () => [16, 9],
  viewSize: () => [16, 9],
  draw(picture, facts, from, to) {
    ftwax.games.frames.fit(picture, to);
  },
  drawView(picture, facts, view) {
    if (view.frame) ftwax.games.frames.fit(picture, view.frame);
    else ftwax.drawValues(picture, view.values || [], [16, 9]);
  },
  // Draws a frame in its own shape.
  fit(picture, source) {
    const {context, colors} = picture;
    const last = ftwax.games.frames.shape || [16, 9];
    const scale = Math.min(16 / last[0], 9 / last[1]);
    context.save();
    context.translate((16 - last[0] * scale) / 2, (9 - last[1] * scale) / 2);
    const shape = ftwax.drawFrame(picture, source, last.map((n) => n * scale));
    if (shape) ftwax.games.frames.shape = shape;
    context.restore();
    context.fillStyle = colors.text;
  },
  status: () => '',
  viewStatus: () => '',
  events: () => [],
};
