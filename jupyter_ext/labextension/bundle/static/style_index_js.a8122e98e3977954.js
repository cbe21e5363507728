"use strict";(self.rspackChunkkubeflow_bitfusion=self.rspackChunkkubeflow_bitfusion||[]).push([["style_index_js"],{"./node_modules/css-loader/dist/cjs.js!./style/index.css"(e,o,r){var t=r("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=r.n(t),n=r("./node_modules/css-loader/dist/runtime/api.js"),a=(r.n(n))()(i());a.push([e.id,`/* The chip beside the kernel's name, and the one in the status bar. */

.bf-ChipBox {
  display: flex;
  align-items: center;
  min-width: 0;
}

/* JupyterLab keeps the width that a tool has first, and hides tools by it. The text grows over the free space. */
.jp-Toolbar > .bf-ChipBox.bf-mod-toolbar {
  justify-content: flex-end;
  width: 150px;
  overflow: visible;
}

.bf-mod-toolbar .bf-Chip {
  flex: none;
}

.bf-Chip {
  display: inline-flex;
  align-items: center;
  gap: 4px;
  max-width: 340px;
  height: 24px;
  padding: 0 6px;
  border: none;
  border-radius: var(--jp-border-radius);
  background: transparent;
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 24px;
  cursor: pointer;
}

.bf-Chip.bf-mod-narrow {
  max-width: 180px;
}

.bf-Chip:hover,
.bf-Chip[aria-expanded='true'] {
  background: var(--jp-layout-color2);
}

.bf-Chip:focus-visible,
.bf-Link:focus-visible,
.bf-Button:focus-visible,
.bf-IconButton:focus-visible,
.bf-Size:focus-visible,
.bf-Section:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.bf-Chip-text {
  overflow: hidden;
  font-variant-numeric: tabular-nums;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.bf-Chip-icon,
.bf-Chip-caret {
  display: inline-flex;
  flex: none;
}

.bf-Chip-icon svg {
  width: 14px;
  height: 14px;
}

.bf-Chip-caret svg {
  width: 16px;
  height: 16px;
}

.bf-Chip.bf-mod-running .bf-Chip-icon [fill],
.bf-Chip.bf-mod-starting .bf-Chip-icon [fill] {
  fill: var(--jp-success-color1);
}

.bf-Chip.bf-mod-waiting .bf-Chip-icon [fill] {
  fill: var(--jp-warn-color1);
}

.bf-Chip.bf-mod-none,
.bf-Chip.bf-mod-releasing {
  color: var(--jp-ui-font-color2);
}

.bf-Chip.bf-mod-stale .bf-Chip-text {
  font-style: italic;
}

.bf-mod-statusbar .bf-Chip {
  height: 22px;
  font-size: var(--jp-ui-font-size1);
  line-height: 22px;
}

.bf-Menu {
  max-width: calc(100vw - 8px);
}

.bf-Menu .lm-Menu-itemLabel,
.bf-Menu .lm-Menu-itemShortcut.bf-Menu-note {
  white-space: normal;
}

.bf-Menu .lm-Menu-itemShortcut.bf-Menu-note {
  padding-left: 24px;
  color: var(--jp-ui-font-color2);
}

.bf-Menu .lm-Menu-item[data-type='separator'] > div {
  padding: 0;
}

/* The side panel. */

.bf-Panel {
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
}

.bf-Section,
.bf-SectionView {
  overflow: auto;
}

.bf-SectionView {
  padding: 4px 12px 8px;
}

.bf-Note {
  padding: 4px 0;
  color: var(--jp-ui-font-color2);
  line-height: 1.4;
}

.bf-Note[role='alert'] {
  margin-bottom: 4px;
  padding: 4px 8px;
  border-left: 4px solid var(--jp-error-color1);
  color: var(--jp-ui-font-color1);
}

.bf-Text {
  margin: 0;
  overflow-x: auto;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  line-height: var(--jp-code-line-height);
}

.bf-List {
  margin: 0;
  padding: 0;
  list-style: none;
}

.bf-Ellipsis {
  min-width: 0;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.bf-Wrap {
  min-width: 0;
  overflow-wrap: anywhere;
}

.bf-Kernel {
  padding: 4px 0;
}

.bf-Kernel + .bf-Kernel {
  border-top: 1px solid var(--jp-border-color3);
}

.bf-Kernel-head,
.bf-Kernel-warning,
.bf-Gpu-head,
.bf-Place,
.bf-Holder {
  display: flex;
  align-items: center;
  justify-content: space-between;
  gap: 8px;
}

.bf-Kernel-head {
  min-height: 24px;
}

.bf-Kernel-state,
.bf-Kernel-warning {
  line-height: 1.35;
}

.bf-Kernel-state,
.bf-Holder,
.bf-Gpu-free {
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
}

.bf-Kernel-warning {
  margin-top: 2px;
  padding-left: 6px;
  border-left: 4px solid var(--jp-warn-color1);
}

.bf-Link {
  min-width: 0;
  padding: 0;
  overflow: hidden;
  border: none;
  background: none;
  color: var(--jp-content-link-color);
  font: inherit;
  text-align: left;
  text-overflow: ellipsis;
  white-space: nowrap;
  cursor: pointer;
}

.bf-Link:hover {
  text-decoration: underline;
}

.bf-Buttons {
  display: inline-flex;
  flex: none;
  gap: 4px;
}

.bf-Button,
.bf-Size {
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  cursor: pointer;
}

.bf-Button {
  flex: none;
  height: 22px;
  padding: 0 8px;
  line-height: 20px;
}

.bf-Button:hover {
  background: var(--jp-layout-color2);
}

.bf-IconButton {
  display: inline-flex;
  padding: 3px;
  border: none;
  border-radius: var(--jp-border-radius);
  background: transparent;
  cursor: pointer;
}

.bf-IconButton:hover {
  background: var(--jp-layout-color2);
}

.bf-Sizes {
  display: flex;
  flex-direction: column;
  gap: 4px;
  padding-top: 4px;
}

.bf-Size {
  display: flex;
  flex-wrap: wrap;
  justify-content: space-between;
  gap: 0 8px;
  width: 100%;
  min-height: 24px;
  padding: 2px 8px;
  text-align: left;
}

.bf-Size:hover:enabled {
  background: var(--jp-layout-color2);
}

.bf-Size[aria-pressed='true'] {
  border-color: var(--jp-brand-color1);
  box-shadow: inset 3px 0 0 var(--jp-brand-color1);
}

.bf-Size:disabled {
  color: var(--jp-ui-font-color3);
  cursor: default;
}

.bf-Size-note {
  color: var(--jp-ui-font-color2);
}

/* What is faint on the ground is too faint on what is under the pointer. */
.bf-Chip:hover,
.bf-Chip[aria-expanded='true'],
.bf-Size:hover:enabled .bf-Size-note,
.bf-Menu .lm-Menu-item.lm-mod-active .lm-Menu-itemShortcut.bf-Menu-note {
  color: var(--jp-ui-font-color1);
}

.bf-Place {
  justify-content: flex-start;
  padding: 2px 0;
}

.bf-Place-number {
  flex: none;
  min-width: 1.2em;
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
}

.bf-Mine {
  flex: none;
  padding: 0 6px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 8px;
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size0);
  line-height: 16px;
}

.bf-Server-name {
  margin: 4px 0 2px;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.bf-Gpu {
  padding: 4px 0 6px;
}

.bf-Gpu-free {
  flex: none;
  font-size: var(--jp-ui-font-size0);
}

.bf-Holder {
  padding: 1px 0;
  font-size: var(--jp-ui-font-size0);
  line-height: 1.35;
}

.bf-Bar {
  display: flex;
  height: 10px;
  margin: 3px 0;
  overflow: hidden;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
  background: var(--jp-layout-color1);
}

.bf-Bar-part {
  box-sizing: border-box;
  height: 100%;
}

/* Mine is plain, others' is striped: told apart without colour. */
.bf-Bar-part.bf-mod-mine {
  background: var(--jp-brand-color1);
}

.bf-Bar-part.bf-mod-others {
  background: repeating-linear-gradient(
    -45deg,
    var(--jp-ui-font-color2) 0 3px,
    transparent 3px 6px
  );
}

.bf-Bar .bf-Bar-part + .bf-Bar-part {
  border-left: 1px solid var(--jp-layout-color1);
}

.bf-Legend {
  display: flex;
  flex-wrap: wrap;
  gap: 4px 12px;
  padding-top: 4px;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.bf-Legend .bf-Bar-part {
  display: inline-block;
  width: 14px;
  height: 9px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 2px;
  vertical-align: -1px;
}

.bf-History {
  margin: 4px 0 0;
}

.bf-History svg {
  display: block;
  width: 100%;
  height: 48px;
  border-bottom: 1px solid var(--jp-border-color1);
}

.bf-History-area {
  fill: var(--jp-brand-color3);
  opacity: 0.6;
}

.bf-History-line {
  fill: none;
  stroke: var(--jp-brand-color1);
  stroke-width: 1.5px;
}

.bf-History figcaption {
  padding-top: 4px;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

/* The dialog. */

.bf-FormBox {
  min-width: 280px;
}

.bf-Form fieldset {
  margin: 8px 0 0;
  padding: 4px 10px 8px;
  border: 1px solid var(--jp-border-color2);
}

.bf-Form-row {
  display: grid;
  grid-template-columns: minmax(110px, auto) 1fr 5em;
  align-items: center;
  gap: 8px;
  min-height: 30px;
}

.bf-Form-row output {
  text-align: right;
  font-variant-numeric: tabular-nums;
}

.bf-Form-row input[type='radio'] {
  width: auto;
  vertical-align: -2px;
}

.bf-Form-row input[type='range'] {
  min-width: 60px;
  accent-color: var(--jp-brand-color1);
}

.bf-mod-faint {
  color: var(--jp-ui-font-color2);
}

.bf-Form-sum {
  margin: 10px 0 0;
}

.bf-Form-cost {
  margin: 6px 0 0;
  padding-left: 8px;
  border-left: 4px solid var(--jp-warn-color1);
}

/* JupyterLab's list of running kernels: those that hold a GPU (kernelmarks.ts). */

.jp-RunningSessions-itemLabel::before {
  margin-right: 6px;
  color: var(--jp-ui-font-color2);
}

.bf-Lease .jp-RunningSessions-itemDetail {
  margin-left: 4px;
}

/* A cell that waits. */

.bf-WaitBox {
  padding: var(--jp-code-padding);
}

.bf-Wait {
  display: inline-block;
  padding: 6px 14px;
  border-left: 4px solid var(--jp-warn-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.6;
}

.bf-Wait.bf-mod-over {
  border-left-color: var(--jp-border-color1);
  color: var(--jp-ui-font-color2);
}

.bf-Wait-head b {
  font-variant-numeric: tabular-nums;
}

.bf-Wait-head button {
  margin-left: 12px;
}

@media (forced-colors: active) {
  .bf-Bar-part.bf-mod-mine {
    forced-color-adjust: none;
    background: Highlight;
  }

  .bf-Bar-part.bf-mod-others {
    forced-color-adjust: none;
    background: repeating-linear-gradient(-45deg, CanvasText 0 3px, Canvas 3px 6px);
  }

  .bf-Size[aria-pressed='true'] {
    outline: 2px solid Highlight;
  }

  .bf-History-line {
    stroke: CanvasText;
  }
}
`,""]),r.d(o,{},{A:a})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var o=[];return o.toString=function(){return this.map(function(o){var r="",t=void 0!==o[5];return o[4]&&(r+="@supports (".concat(o[4],") {")),o[2]&&(r+="@media ".concat(o[2]," {")),t&&(r+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),r+=e(o),t&&(r+="}"),o[2]&&(r+="}"),o[4]&&(r+="}"),r}).join("")},o.i=function(e,r,t,i,n){"string"==typeof e&&(e=[[null,e,void 0]]);var a={};if(t)for(var l=0;l<this.length;l++){var s=this[l][0];null!=s&&(a[s]=!0)}for(var p=0;p<e.length;p++){var d=[].concat(e[p]);t&&a[d[0]]||(void 0!==n&&(void 0===d[5]||(d[1]="@layer".concat(d[5].length>0?" ".concat(d[5]):""," {").concat(d[1],"}")),d[5]=n),r&&(d[2]&&(d[1]="@media ".concat(d[2]," {").concat(d[1],"}")),d[2]=r),i&&(d[4]?(d[1]="@supports (".concat(d[4],") {").concat(d[1],"}"),d[4]=i):d[4]="".concat(i)),o.push(d))}},o}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var o=[];function r(e){for(var r=-1,t=0;t<o.length;t++)if(o[t].identifier===e){r=t;break}return r}function t(e,t){for(var i={},n=[],a=0;a<e.length;a++){var l=e[a],s=t.base?l[0]+t.base:l[0],p=i[s]||0,d="".concat(s," ").concat(p);i[s]=p+1;var f=r(d),u={css:l[1],media:l[2],sourceMap:l[3],supports:l[4],layer:l[5]};if(-1!==f)o[f].references++,o[f].updater(u);else{var c=function(e,o){var r=o.domAPI(o);return r.update(e),function(o){o?(o.css!==e.css||o.media!==e.media||o.sourceMap!==e.sourceMap||o.supports!==e.supports||o.layer!==e.layer)&&r.update(e=o):r.remove()}}(u,t);t.byIndex=a,o.splice(a,0,{identifier:d,updater:c,references:1})}n.push(d)}return n}e.exports=function(e,i){var n=t(e=e||[],i=i||{});return function(e){e=e||[];for(var a=0;a<n.length;a++){var l=r(n[a]);o[l].references--}for(var s=t(e,i),p=0;p<n.length;p++){var d=r(n[p]);0===o[d].references&&(o[d].updater(),o.splice(d,1))}n=s}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var o={};e.exports=function(e,r){var t=function(e){if(void 0===o[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}o[e]=r}return o[e]}(e);if(!t)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");t.appendChild(r)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var o=document.createElement("style");return e.setAttributes(o,e.attributes),e.insert(o,e.options),o}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,o,r){e.exports=function(e){var o=r.nc;o&&e.setAttribute("nonce",o)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=e.insertStyleElement(e);return{update:function(r){var t,i,n;t="",r.supports&&(t+="@supports (".concat(r.supports,") {")),r.media&&(t+="@media ".concat(r.media," {")),(i=void 0!==r.layer)&&(t+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),t+=r.css,i&&(t+="}"),r.media&&(t+="}"),r.supports&&(t+="}"),(n=r.sourceMap)&&"u">typeof btoa&&(t+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),e.styleTagTransform(t,o,e.options)},remove:function(){var e;null===(e=o).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,o){if(o.styleSheet)o.styleSheet.cssText=e;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(e))}}},"./style/index.js"(e,o,r){var t=r("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),i=r.n(t),n=r("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),a=r.n(n),l=r("./node_modules/style-loader/dist/runtime/insertBySelector.js"),s=r.n(l),p=r("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),d=r.n(p),f=r("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),u=r.n(f),c=r("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),b=r.n(c),h=r("./node_modules/css-loader/dist/cjs.js!./style/index.css"),m={};m.styleTagTransform=b(),m.setAttributes=d(),m.insert=s().bind(null,"head"),m.domAPI=a(),m.insertStyleElement=u(),i()(h.A,m),h.A&&h.A.locals&&h.A.locals}}]);